//! What is told of the switches that a controller has its rules in.

use guira_openflow::{DatapathId, FlowKey, Refusal, Rules, SwitchStatus, SwitchesTold, TableId, Told};
use serde_json::{Value, json};

/// Says who comes and goes, and what somebody has to see to. What is said of each key is for the controller.
pub(super) fn tell_of_switches(told: &SwitchesTold) {
    let name = |datapath: &Option<DatapathId>| {
        datapath.map_or_else(|| "a switch".to_owned(), |datapath| format!("switch {datapath}"))
    };
    match told {
        SwitchesTold::Of(_, Told::Known(datapath)) => eprintln!("guira: {} has called", name(&Some(*datapath))),
        SwitchesTold::Gone(Some(datapath), None) => eprintln!("guira: {} has gone", name(&Some(*datapath))),
        SwitchesTold::Gone(datapath, Some(why)) => eprintln!("guira: {} is hung up on: {why}", name(datapath)),
        SwitchesTold::Of(datapath, Told::Refused(FlowKey { table, priority, .. }, Refusal { kind, code }))
            if *priority != Rules::OF_A_HASH =>
        {
            let (name, TableId(table)) = (name(datapath), table);
            eprintln!(
                "guira: {name} refuses a flow that the cluster cannot do without (of priority {priority} in table {table}: error {kind}.{code})"
            );
        }
        SwitchesTold::Of(..) | SwitchesTold::Gone(None, None) => {}
    }
}

/// A controller's status with its switches': their number, what they have together, and each.
pub(super) fn with_switches(mut status: Value, switches: &[SwitchStatus]) -> Value {
    let sum = |of: fn(&SwitchStatus) -> usize| switches.iter().map(of).sum::<usize>();
    status["switches"] = json!(switches.len());
    status["flows"] = json!(sum(|switch| switch.made));
    status["flows_waiting"] = json!(sum(|switch| switch.waiting));
    let slowest = switches.iter().filter_map(|switch| switch.updates_per_s).reduce(f64::min);
    if let Some(slowest) = slowest {
        status["flow_updates_per_s"] = json!(slowest.round());
    }
    let each = switches.iter().map(|switch| {
        json!({
            "datapath": switch.datapath.map(|datapath| datapath.to_string()),
            "flows_wanted": switch.wanted,
            "flows": switch.made,
            "flows_waiting": switch.waiting,
            "updates_per_s": switch.updates_per_s.map(f64::round),
            "refused": switch.counts.refused,
            "differing": switch.counts.differing,
        })
    });
    status["each_switch"] = each.collect();
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_told_together_and_each() {
        let switch = |made, updates_per_s| SwitchStatus {
            datapath: Some(DatapathId(7)),
            wanted: 9,
            made,
            waiting: 9 - made,
            updates_per_s,
            ..SwitchStatus::default()
        };
        let told = with_switches(json!({ "rules": 3 }), &[switch(9, None), switch(5, Some(1_000.4))]);
        assert_eq!((&told["rules"], &told["switches"], &told["flows"]), (&json!(3), &json!(2), &json!(14)));
        assert_eq!((&told["flows_waiting"], &told["flow_updates_per_s"]), (&json!(4), &json!(1_000.0)));
        assert_eq!(told["each_switch"][1]["datapath"], json!("0000000000000007"));
        let unknown = with_switches(json!({}), &[SwitchStatus::default()]);
        assert_eq!(unknown.get("flow_updates_per_s"), None);
    }
}
