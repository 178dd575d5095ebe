//! A program that is given a frame without a link (`BPF_PROG_TEST_RUN` of `bpf(2)`): what it does with it; or many of them, which go where it sends them.

#![expect(unsafe_code, reason = "libc has no safe way to bpf(2)")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// What a program has said of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It has gone wrong.
    Aborted,
    /// The frame is dropped.
    Drop,
    /// It comes to the host.
    Pass,
    /// It leaves by the link that it came by.
    Back,
    /// It leaves by another.
    Redirect,
    /// There is no such verdict.
    Unknown(u32),
}

impl From<u32> for Verdict {
    fn from(said: u32) -> Self {
        match said {
            0 => Self::Aborted,
            1 => Self::Drop,
            2 => Self::Pass,
            3 => Self::Back,
            4 => Self::Redirect,
            other => Self::Unknown(other),
        }
    }
}

/// What has become of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trial {
    /// What was said of it.
    pub verdict: Verdict,
    /// How long the frame is that the program leaves.
    pub len: usize,
    /// How long it took, as the kernel has measured it, in nanoseconds: of many runs the mean.
    pub took_ns: u32,
}

/// Whether frames only seem to go somewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frames {
    /// They stay here, and what is left of the last one is told.
    Dry,
    /// They go there.
    Live,
}

const BPF_PROG_TEST_RUN: libc::c_long = 10;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

/// The part of `union bpf_attr` that says what is to be run.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    program: u32,
    verdict: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    /// The kernel wants what it does not know to be zero, padding too.
    padding: u32,
}

/// Shows a program a frame so many times, as if each were new. What it leaves of a dry one comes into `left`.
///
/// # Errors
/// The rights are not there, the frame is shorter than 14 bytes or longer than a page, or the kernel cannot do this.
pub(crate) fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    repeat: u32,
    frames: Frames,
    left: &mut [u8],
) -> io::Result<Trial> {
    let mut attributes = Attributes {
        program: program.as_raw_fd().unsigned_abs(),
        data_size_in: frame.len() as u32,
        data_in: frame.as_ptr() as u64,
        repeat,
        ..Attributes::default()
    };
    match frames {
        // With a place and no size the kernel would take the size to be the frame's.
        Frames::Dry if left.is_empty() => {}
        Frames::Dry => (attributes.data_out, attributes.data_size_out) = (left.as_mut_ptr() as u64, left.len() as u32),
        Frames::Live => attributes.flags = BPF_F_TEST_XDP_LIVE_FRAMES,
    }
    // SAFETY: `attributes` is as long as is said, and is borrowed mutably; the kernel reads `data_size_in` bytes at `data_in`, which is `frame`, and
    // writes no more than `data_size_out` at `data_out`, which is `left` and not empty, or null; all of them outlive the call.
    let done = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_TEST_RUN, &raw mut attributes, size_of::<Attributes>()) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    let len = attributes.data_size_out as usize;
    Ok(Trial { verdict: attributes.verdict.into(), len, took_ns: attributes.duration })
}
