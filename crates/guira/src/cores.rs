//! Lists of cores, as `taskset` writes them: `0,2-5`.

/// Most cores in a list; each has a lower number. What a thread can be kept to (`CPU_SETSIZE`).
const CORES_MAX: usize = 1_024;

/// The cores of a list, in its order.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse(list: &str) -> Result<Vec<usize>, String> {
    let core = |text: &str| text.parse::<usize>().ok().filter(|core| *core < CORES_MAX);
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (core(first), core(last)) {
            (Some(first), Some(last)) if first <= last && cores.len() + last - first < CORES_MAX => {
                cores.extend(first..=last);
            }
            _ => return Err(format!("{list}: write cores by number, below {CORES_MAX}, such as 0,2-5")),
        }
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ranges_are_read_in_order() {
        assert_eq!(parse("3"), Ok(vec![3]));
        assert_eq!(parse("0,2-5,1"), Ok(vec![0, 2, 3, 4, 5, 1]));
        assert_eq!(parse("0-1023").map(|cores| cores.len()), Ok(CORES_MAX));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in ["", ",", "1,", "a", "-1", "1-", "5-2", "1-2-3", "1024", "0-1023,0", "99999999999999999999", " 1"] {
            let told = parse(list).expect_err(list);
            assert!(told.starts_with(list), "{told}");
        }
    }
}
