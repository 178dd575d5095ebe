//! What `guira cluster status` prints.

use std::collections::BTreeMap;

use guira_switched::Member;
use serde_json::Value;

/// What is printed of all members.
pub(super) fn table(members: &[(&Member, Value)], up: &BTreeMap<String, Value>) -> String {
    let mut text = format!("{:<12}{:>8}{:>8}{:>10}  what it says of itself\n", "member", "number", "pid", "restarts");
    let sum = |role: &str, field: &str| -> u64 {
        let of_role = members.iter().filter(|(member, _)| member.role.name() == role);
        of_role.filter_map(|(_, told)| told.get(field).and_then(Value::as_u64)).sum()
    };
    for (member, told) in members {
        let process = up.get(&member.id.to_string());
        let number = |field: &str| process.and_then(|process| process.get(field)).and_then(Value::as_u64);
        let shown = |field: &str| number(field).map_or_else(|| "-".to_owned(), |number| number.to_string());
        let says = match told.as_object() {
            None => "nothing: it is down, or starting".to_owned(),
            Some(fields) => {
                let fields = fields.iter().filter(|(_, value)| !value.is_array() && !value.is_object());
                fields.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
            }
        };
        let (role, id) = (member.role.name(), member.id);
        text += &format!("{role:<12}{id:>8}{:>8}{:>10}  {says}\n", shown("pid"), shown("restarts"));
    }
    let (hits, operations) = (sum("cache", "hits"), sum("backend", "operations"));
    if hits + operations > 0 {
        let share = 100.0 * hits as f64 / (hits + operations) as f64;
        text += &format!("\n{share:.1} % of {} operations answered by cache nodes\n", hits + operations);
    }
    for (member, told) in members {
        let hottest = told.get("hottest").and_then(Value::as_array).into_iter().flatten();
        for (at, key) in hottest.enumerate() {
            if at == 0 {
                text += &format!("hottest at cache {}, queries a second:\n", member.id);
            }
            let name = key.get("key").and_then(Value::as_str).unwrap_or_default();
            text += &format!("{:>10} {name}\n", key.get("per_s").and_then(Value::as_f64).unwrap_or_default());
        }
    }
    text
}
