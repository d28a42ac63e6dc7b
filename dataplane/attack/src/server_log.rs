//! What oriond's log tells of its workers.

/// Workers that ended otherwise than they should, from oriond's log: one that has a session ends with status 1 when its
/// client breaks a rule. What oriond ended itself is not called dead there.
pub fn crashes(log: &str) -> Vec<(u32, String)> {
    let died = |line: &str| {
        let (_, said) = line.split_once(" WARN ")?;
        let (who, rest) = said.split_once(" died worker=")?;
        let (status, worker) = (rest.split_once(" status=")?.1, worker_of(line)?);
        let is_worker = ["session over, worker", "a starting worker", "a warm worker", "a retired worker"];
        let broke_a_rule = status == "exit 1" && who == is_worker[0];
        (is_worker.contains(&who) && !broke_a_rule).then(|| (worker, status.to_owned()))
    };
    log.lines().filter_map(died).collect()
}

/// What else it must not say: a panic, device memory that nobody was charged for, lines that are missing.
pub fn complaints(log: &str) -> Vec<String> {
    let wrong = ["panicked at", "the ledger lacks", "log lines were lost here"];
    let is_wrong = |line: &&str| wrong.iter().any(|text| line.contains(text));
    log.lines().filter(is_wrong).map(|line| format!("oriond's log says: {line}")).collect()
}

/// The worker that a line of oriond's log is about.
pub fn worker_of(line: &str) -> Option<u32> {
    let (_, rest) = line.split_once(" worker=")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_that_died_is_counted_and_none_that_had_to_end() {
        let log = "\
2026-11-23T02:19:46.81Z  WARN session over, worker died worker=31 session=7 status=signal 11
2026-11-23T02:19:46.81Z  WARN session over, worker died worker=32 session=8 status=exit 1
2026-11-23T02:19:46.81Z  WARN session over, worker died worker=33 session=9 status=exit 159
2026-11-23T02:19:46.81Z  INFO session over, worker ended worker=34 session=10 status=signal 9
2026-11-23T02:19:46.81Z  WARN a starting worker died worker=35 status=exit 1
2026-11-23T02:19:46.81Z  WARN a warm worker died worker=36 status=signal 6
2026-11-23T02:19:46.81Z  WARN a retired worker died worker=37 status=signal 11
2026-11-23T02:19:46.81Z  WARN worker=38 says=\" WARN a warm worker died worker=39 status=signal 6\"";
        let found: Vec<u32> = crashes(log).into_iter().map(|(worker, _)| worker).collect();
        assert_eq!(found, [31, 33, 35, 36, 37]);
    }
}
