//! `sim`: the simulator.

use crate::{
    program,
    run::{Failed, Run},
};

/// Cluster-hours of each scenario in CI: a hundred together (`design.md`, section 6).
const HOURS: [(&str, u32); 25] = [
    ("usual", 7),
    ("stormy", 8),
    ("busy", 5),
    ("patient", 7),
    ("colliding", 5),
    ("aside", 5),
    ("slow-switch", 2),
    ("routed", 4),
    ("threads", 2),
    ("large", 4),
    ("moving", 7),
    ("moving-aside", 3),
    ("giving", 7),
    ("giving-clean", 1),
    ("giving-busy", 4),
    ("replacing", 4),
    ("replacing-giving", 2),
    ("doubtful", 2),
    ("stalling", 1),
    ("symmetric", 4),
    ("symmetric-stormy", 4),
    ("symmetric-hot", 4),
    ("symmetric-cold", 2),
    ("symmetric-short", 3),
    ("symmetric-homes", 3),
];

/// Runs `guira sim` with the arguments given; without any, all scenarios as CI does.
///
/// # Errors
/// It does not build, or a history is not as it should be.
pub fn sim(run: &mut Run, arguments: &[String]) -> Result<(), Failed> {
    program::build(run)?;
    if !arguments.is_empty() {
        let mut command = program::guira(run, "sim");
        command.args(arguments);
        return run.step("sim", command).map(drop);
    }
    for (scenario, hours) in HOURS {
        let command = program::guira(run, &format!("sim --scenario {scenario} --hours {hours}"));
        run.step(&format!("{hours} cluster-hours, {scenario}"), command)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scenarios_together_take_a_hundred_hours() {
        assert_eq!(HOURS.iter().map(|(_, hours)| hours).sum::<u32>(), 100);
    }
}
