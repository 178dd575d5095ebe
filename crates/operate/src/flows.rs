//! Flows as JSON, in the words of other controllers' interfaces (Ryu's `ofctl_rest`, Faucet's, OpenDaylight's: the standard's names of fields, in lower case), so that one of
//! these can put them into its switches.
//!
//! ```text
//! {"id": "00000190000100...", "dpid": "0000000000000002", "table_id": 0, "priority": 400,
//!  "match": {"eth_type": 34525, "ip_proto": 17, "ipv6_dst": "fd5e:a1c0:1:3e8::7", "udp_dst": 6999},
//!  "actions": [{"type": "SET_FIELD", "field": "eth_dst", "value": "02:00:00:00:00:64"}, {"type": "OUTPUT", "port": 2}]}
//! ```
//! A version is a text of digits, since it is more than a number of JSON is safe for. Changes are to be followed from the version of the first page on; while `whole` is
//! false, flows of hashes that are not told are to be left where they are: a controller that has just begun does not know yet what is cached.
//! Without `dpid` all switches have a flow; where some flows have one, all are those of which the cluster's file says how they are joined, and no others.
//! Always true: of a flow the id says which it is, and that one of the same id takes its place; no action: its packets are dropped.

use std::net::{Ipv4Addr, Ipv6Addr};

use guira_openflow::{Actions, FlowAt, FlowChange, Masked, Match, Port, TableId, WantedChanges, WantedFlows};
use guira_routing::MacAddress;
use serde::Serialize;

/// Flows in an answer, at most.
pub(crate) const FLOWS_AT_ONCE: usize = 1_000;

/// Answers `GET /v1/flows`.
#[derive(Serialize)]
pub(crate) struct Flows {
    version: String,
    whole: bool,
    flows: Vec<Flow>,
    /// After which id to go on; not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

impl Flows {
    /// A page of at most `limit`: a full one may not be the last.
    pub(crate) fn new(WantedFlows { version, is_whole: whole, flows }: WantedFlows, limit: usize) -> Self {
        let next = flows.last().filter(|_| flows.len() >= limit).map(|(flow, _)| id(flow));
        Self { version: version.0.to_string(), whole, flows: flows.into_iter().map(Flow::from).collect(), next }
    }
}

/// Answers `GET /v1/flows/changes`.
#[derive(Serialize)]
pub(crate) struct Changes {
    /// Since which version to ask next.
    version: String,
    whole: bool,
    changes: Vec<Change>,
}

/// A flow that is to be there, or the id of one that is not to be there any more.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Make(Flow),
    Delete(String),
}

impl From<WantedChanges> for Changes {
    fn from(WantedChanges { version, is_whole: whole, changes }: WantedChanges) -> Self {
        let change = |(flow, actions): FlowChange| match actions {
            Some(actions) => Change::Make(Flow::from((flow, actions))),
            None => Change::Delete(id(&flow)),
        };
        Self { version: version.0.to_string(), whole, changes: changes.into_iter().map(change).collect() }
    }
}

#[derive(Serialize)]
struct Flow {
    id: String,
    /// Which switch's, if not all have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    dpid: Option<String>,
    table_id: u8,
    priority: u16,
    #[serde(rename = "match")]
    matched: Fields,
    actions: Vec<Action>,
}

/// What is compared; what is not there is not.
#[derive(Serialize)]
struct Fields {
    #[serde(skip_serializing_if = "Option::is_none")]
    in_port: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eth_dst: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    eth_type: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_proto: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv4_dst: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ipv6_dst: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    udp_dst: Option<u16>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
enum Action {
    SetField { field: &'static str, value: String },
    Output { port: u32 },
    GotoTable { table_id: u8 },
}

impl From<(FlowAt, Actions)> for Flow {
    fn from((flow @ FlowAt { switch, key }, actions): (FlowAt, Actions)) -> Self {
        let set = actions.set_eth_dst.map(|mac| Action::SetField { field: "eth_dst", value: mac.to_string() });
        let output = actions.output.map(|Port(port)| Action::Output { port });
        let next = actions.next_table.map(|TableId(table_id)| Action::GotoTable { table_id });
        Self {
            id: id(&flow),
            dpid: switch.map(|switch| switch.to_string()),
            table_id: key.table.0,
            priority: key.priority,
            matched: key.matched.into(),
            actions: [set, output, next].into_iter().flatten().collect(),
        }
    }
}

impl From<Match> for Fields {
    fn from(Match { in_port, eth_dst, eth_type, ip_proto, ipv4_dst, ipv6_dst, udp_dst }: Match) -> Self {
        Self {
            in_port: in_port.map(|Port(port)| port),
            eth_dst: eth_dst.map(|to| masked(to, |bytes| MacAddress(bytes).to_string())),
            eth_type,
            ip_proto,
            ipv4_dst: ipv4_dst.map(|to| masked(to, |bytes| Ipv4Addr::from(bytes).to_string())),
            ipv6_dst: ipv6_dst.map(|to| masked(to, |bytes| Ipv6Addr::from(bytes).to_string())),
            udp_dst,
        }
    }
}

/// A value, and behind a stroke its mask if that has zeros.
fn masked<const N: usize>(field: Masked<N>, text: impl Fn([u8; N]) -> String) -> String {
    let value = text(field.value());
    if field.is_exact() { value } else { format!("{value}/{}", text(field.mask())) }
}

fn id(flow: &FlowAt) -> String {
    flow.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The flow of an id.
pub(crate) fn flow(id: &str) -> Option<FlowAt> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = id.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    FlowAt::from_bytes(&bytes.filter(|_| rest.is_empty())?).ok()
}

#[cfg(test)]
mod tests {
    use guira_openflow::{DatapathId, Place, Rules};
    use guira_routing::{KeyHash, NodeId};
    use serde_json::{Value, json};

    use super::*;

    fn shown(at: impl Into<FlowAt>, actions: Actions) -> Value {
        let at = at.into();
        let mut shown = serde_json::to_value(Flow::from((at, actions))).unwrap();
        let id = shown["id"].take();
        assert_eq!(flow(id.as_str().unwrap()), Some(at));
        shown.as_object_mut().unwrap().remove("id");
        shown
    }

    #[test]
    fn flows_are_shown_in_the_words_of_other_controllers() {
        let place = Place { mac: MacAddress([2, 0, 0, 0, 0, 0x64]), port: Port(2), switch: None };
        let rules = |text: &str| Rules::new(text.parse().unwrap(), 6_999);
        let (backend, hash) = (NodeId(1_000), KeyHash(0x0123_4567_89ab_cdef));
        let ipv6 = rules("ipv6=fd5e:a1c0::/32");
        let to = json!([{"type": "SET_FIELD", "field": "eth_dst", "value": "02:00:00:00:00:64"}, {"type": "OUTPUT", "port": 2}]);
        let datagram = |to: &str| json!({"eth_type": 0x86dd, "ip_proto": 17, "udp_dst": 6_999, "ipv6_dst": to});
        assert_eq!(
            shown(ipv6.of_hash(backend, hash), ipv6.to(place).unwrap()),
            json!({"table_id": 0, "priority": 400, "match": datagram("fd5e:a1c0:1:3e8:123:4567:89ab:cdef"), "actions": to})
        );
        assert_eq!(
            shown(ipv6.of_backend(backend).unwrap(), ipv6.to(place).unwrap())["match"],
            datagram("fd5e:a1c0:1:3e8::/ffff:ffff:ffff:ffff::")
        );
        let (key, dropped) = ipv6.of_nobody();
        assert_eq!(shown(key, dropped)["actions"], json!([]));
        let mac = rules("mac=10.77.0.0/16");
        let its = json!({"eth_dst": "0a:00:00:00:00:00/ff:00:00:00:00:00", "eth_type": 0x0800, "ip_proto": 17, "ipv4_dst": "10.77.3.232", "udp_dst": 6_999});
        assert_eq!(shown(mac.of_backend(backend).unwrap(), mac.to(place).unwrap())["match"], its);

        // What one of several switches has of its own.
        let of_second = |key| FlowAt { switch: Some(DatapathId(2)), key };
        let [_, (key, back)] = Rules::way_or_back(place.mac, Port(9));
        assert_eq!(
            shown(of_second(key), back),
            json!({"dpid": "0000000000000002", "table_id": 2, "priority": 200,
                "match": {"in_port": 9, "eth_dst": "02:00:00:00:00:64"},
                "actions": [{"type": "OUTPUT", "port": 0xffff_fff8_u32}]})
        );
        assert_eq!(
            shown(of_second(ipv6.of_hash(backend, hash)), Rules::to_host(place.mac))["actions"],
            json!([{"type": "SET_FIELD", "field": "eth_dst", "value": "02:00:00:00:00:64"}, {"type": "GOTO_TABLE", "table_id": 1}])
        );
    }

    #[test]
    fn what_is_no_id_is_none() {
        for text in ["", "0", "0190", "zz", "01900001000400000000000g", "+19000010004000000"] {
            assert_eq!(flow(text), None, "{text}");
        }
    }
}
