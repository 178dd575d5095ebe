//! Lists of cores, as `taskset` writes them: `0,2-5`.

/// Most cores in a list, and the number of the last one: what Linux knows of at most.
const CORES_MAX: usize = 8_192;

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
            _ => return Err(format!("{list}: write cores by number, such as 0,2-5")),
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
        assert_eq!(parse("0-8191").map(|cores| cores.len()), Ok(CORES_MAX));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for list in ["", ",", "1,", "a", "-1", "1-", "5-2", "1-2-3", "8192", "0-8191,0", "99999999999999999999", " 1"] {
            let told = parse(list).expect_err(list);
            assert!(told.starts_with(list), "{told}");
        }
    }
}
