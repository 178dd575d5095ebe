// A file system in which a read with a timeout does not wait for a device: it has what the system has in memory, or fails.
//
// RocksDB hands its readers' io_timeout (and what is left until their deadline) down with every read of a file. A device is not asked how
// long it will take, so any timeout is taken for "not at all". Everything else goes to RocksDB's own file system. It is for files that are
// read through the system's memory: not for direct reads, nor for mapped files.

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "rocksdb/c.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"

// As RocksDB's db/c.cc has it, which keeps it to itself: there is no other way from a file system of one's own to its C interface. The build
// fails if it is another there.
struct rocksdb_env_t {
  rocksdb::Env* rep;
  bool is_default;
};

namespace {

using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

// Bytes that are copied at once for somebody who has no time: a block with a few items. A longer value, or the whole filter or index of a
// file, takes as long as a device.
constexpr size_t kReadNowMaxBytes = 64 << 10;

bool has_no_time(const IOOptions& options) { return options.timeout.count() != 0; }

// A file, and a second descriptor of it for reads that do not wait; -1 if it could not be opened: then all of these fail.
class NoWaitFile final : public rocksdb::FSRandomAccessFileOwnerWrapper {
 public:
  NoWaitFile(std::unique_ptr<FSRandomAccessFile>&& file, int descriptor)
      : FSRandomAccessFileOwnerWrapper(std::move(file)), descriptor_(descriptor) {}

  NoWaitFile(const NoWaitFile&) = delete;
  NoWaitFile& operator=(const NoWaitFile&) = delete;

  ~NoWaitFile() override {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }

  IOStatus Read(uint64_t offset, size_t len, const IOOptions& options, Slice* result, char* scratch,
                IODebugContext* debug) const override {
    if (has_no_time(options)) {
      return read_now(offset, len, result, scratch);
    }
    return FSRandomAccessFileOwnerWrapper::Read(offset, len, options, result, scratch, debug);
  }

  IOStatus MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options,
                     IODebugContext* debug) override {
    if (has_no_time(options)) {
      // One after the other, by Read.
      return FSRandomAccessFile::MultiRead(requests, count, options, debug);
    }
    return FSRandomAccessFileOwnerWrapper::MultiRead(requests, count, options, debug);
  }

  // Before it returns, unless it is another's to do.
  IOStatus ReadAsync(FSReadRequest& request, const IOOptions& options, std::function<void(FSReadRequest&, void*)> done,
                     void* argument, void** handle, rocksdb::IOHandleDeleter* deleter,
                     IODebugContext* debug) override {
    if (has_no_time(options)) {
      return FSRandomAccessFile::ReadAsync(request, options, std::move(done), argument, handle, deleter, debug);
    }
    return FSRandomAccessFileOwnerWrapper::ReadAsync(request, options, std::move(done), argument, handle, deleter,
                                                     debug);
  }

  bool SubmitReadAsync(FSReadRequest& request, const IOOptions& options, std::function<void(FSReadRequest&)> done,
                       IODebugContext* debug) override {
    if (has_no_time(options)) {
      return FSRandomAccessFile::SubmitReadAsync(request, options, std::move(done), debug);
    }
    return FSRandomAccessFileOwnerWrapper::SubmitReadAsync(request, options, std::move(done), debug);
  }

  IOStatus Prefetch(uint64_t offset, size_t len, const IOOptions& options, IODebugContext* debug) override {
    if (has_no_time(options)) {
      return IOStatus::NotSupported();
    }
    return FSRandomAccessFileOwnerWrapper::Prefetch(offset, len, options, debug);
  }

  void Hint(AccessPattern pattern) override {
    FSRandomAccessFileOwnerWrapper::Hint(pattern);
    // The system keeps advice by descriptor.
    if (pattern == kRandom && descriptor_ >= 0) {
      (void)posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
    }
  }

 private:
  // What the system has not in memory it begins to read (since Linux 5.9), and does not wait for.
  IOStatus read_now(uint64_t offset, size_t len, Slice* result, char* scratch) const {
    size_t got = 0;
    while (got < len && len <= kReadNowMaxBytes) {
      iovec piece{scratch + got, len - got};
      const ssize_t read = preadv2(descriptor_, &piece, 1, static_cast<off_t>(offset + got), RWF_NOWAIT);
      if (read > 0) {
        got += static_cast<size_t>(read);
      } else if (read == 0 || errno != EINTR) {
        // It would wait, or the file system has no such reads, or something is wrong: who waits is told what.
        *result = Slice(scratch, 0);
        return IOStatus::TimedOut();
      }
    }
    *result = Slice(scratch, got);
    return got == len ? IOStatus::OK() : IOStatus::TimedOut();
  }

  const int descriptor_;
};

// A descriptor for reading, whose reads do not write down when they were; -1 if there is none to be had.
int open_for_reading(const std::string& path) {
  for (int flags : {O_RDONLY | O_CLOEXEC | O_NOATIME, O_RDONLY | O_CLOEXEC}) {
    int descriptor;
    do {
      descriptor = open(path.c_str(), flags);
    } while (descriptor < 0 && errno == EINTR);
    // Only the owner of a file may leave its times alone.
    if (descriptor >= 0 || errno != EPERM) {
      return descriptor;
    }
  }
  return -1;
}

class NoWaitFileSystem final : public rocksdb::FileSystemWrapper {
 public:
  explicit NoWaitFileSystem(const std::shared_ptr<FileSystem>& inner) : FileSystemWrapper(inner) {}

  static const char* kClassName() { return "GuiraNoWait"; }
  const char* Name() const override { return kClassName(); }

  IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
                               std::unique_ptr<FSRandomAccessFile>* result, IODebugContext* debug) override {
    if (has_no_time(options.io_options)) {
      // To open a file may take reading what it is.
      return IOStatus::TimedOut();
    }
    std::unique_ptr<FSRandomAccessFile> file;
    IOStatus status = FileSystemWrapper::NewRandomAccessFile(path, options, &file, debug);
    if (status.ok()) {
      *result = std::make_unique<NoWaitFile>(std::move(file), open_for_reading(path));
    }
    return status;
  }
};

}  // namespace

// A new environment with such a file system, to be freed by rocksdb_env_destroy; null if there is no memory.
extern "C" rocksdb_env_t* guira_nowait_env() noexcept {
  try {
    auto files = std::make_shared<NoWaitFileSystem>(FileSystem::Default());
    std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);
    auto made = std::make_unique<rocksdb_env_t>();
    made->rep = env.release();
    made->is_default = false;
    return made.release();
  } catch (...) {
    return nullptr;
  }
}
