//! What `guira cluster status` prints.

use std::collections::BTreeMap;

use serde_json::Value;

/// One who is asked, and what he says.
pub(super) struct Row {
    pub(super) role: &'static str,
    pub(super) id: u16,
    /// `Null`: nothing.
    pub(super) told: Value,
}

/// What is printed of all.
pub(super) fn table(rows: &[Row], up: &BTreeMap<String, Value>) -> String {
    let mut text = format!("{:<12}{:>8}{:>8}{:>10}  what it says of itself\n", "member", "number", "pid", "restarts");
    let sum = |role: &str, field: &str| -> u64 {
        let of_role = rows.iter().filter(|row| row.role == role);
        of_role.filter_map(|row| row.told.get(field).and_then(Value::as_u64)).sum()
    };
    for Row { role, id, told } in rows {
        let process = up.get(&id.to_string());
        let number = |field: &str| process.and_then(|process| process.get(field)).and_then(Value::as_u64);
        let shown = |field: &str| number(field).map_or_else(|| "-".to_owned(), |number| number.to_string());
        let says = match told.as_object() {
            None => "nothing: it is down, or starting".to_owned(),
            Some(fields) => {
                let fields = fields.iter().filter(|(_, value)| !value.is_array() && !value.is_object());
                fields.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
            }
        };
        text += &format!("{role:<12}{id:>8}{:>8}{:>10}  {says}\n", shown("pid"), shown("restarts"));
    }
    let (hits, operations) = (sum("cache", "hits"), sum("backend", "operations"));
    if hits + operations > 0 {
        let share = 100.0 * hits as f64 / (hits + operations) as f64;
        text += &format!("\n{share:.1} % of {} operations answered by cache nodes\n", hits + operations);
    }
    let (hot, cold) =
        (sum("node", "hits") + sum("node", "hot_writes"), sum("node", "at_home") + sum("node", "forwarded"));
    if hot + cold > 0 {
        let share = 100.0 * hot as f64 / (hot + cold) as f64;
        text += &format!("\n{share:.1} % of {} operations were of keys that are hot at all nodes\n", hot + cold);
    }
    let (messages, packets) = (sum("node", "messages_out"), sum("node", "packets_out"));
    if packets > 0 {
        let each = messages as f64 / packets as f64;
        text += &format!(
            "\n{messages} messages from nodes to other members in {packets} datagrams and writes, {each:.1} in each\n"
        );
    }
    for Row { id, told, .. } in rows {
        let hottest = told.get("hottest").and_then(Value::as_array).into_iter().flatten();
        for (at, key) in hottest.enumerate() {
            if at == 0 {
                text += &format!("hottest at cache {id}, queries a second:\n");
            }
            let name = key.get("key").and_then(Value::as_str).unwrap_or_default();
            text += &format!("{:>10} {name}\n", key.get("per_s").and_then(Value::as_f64).unwrap_or_default());
        }
    }
    text
}
