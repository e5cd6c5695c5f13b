//! Files with one mistake each, and the whole message.

use crate::config::{Registry, RuleFile};

/// A correct rule, to which the mistakes are added.
const RULE: &str = "[[rule]]\nname = \"api\"\nby = \"ip\"\nquota = \"100/min\"\n";

fn toml(text: &str) -> String {
    let rules = RuleFile::from_toml(text).and_then(|file| Registry::new().rules(&file));
    rules.map(|_| ()).unwrap_err().to_string()
}

fn json(text: &str) -> String {
    let rules = RuleFile::from_json(text).and_then(|file| Registry::new().rules(&file));
    rules.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn spike() {
    for add in [
        "qouta = 5",
        "name = \"x\"",
        "cost = -1",
        "cost = 500",
        "cost = 1.5",
        "cost = \"kib\"",
        "burst = 3",
        "algorithm = \"token\"",
        "algorithm = \"sliding-window\"\nbuckets = 3",
        "algorithm = \"sliding-buckets\"\nbuckets = 0",
        "max-wait = \"5s\"",
        "max-wait = 5",
        "lease = \"5s\"",
        "in-flight = 3",
        "when = { path = \"api\" }",
        "when = { method = \"get\" }",
        "when = { method = [] }",
        "when = { method = [\"GET\", \"x y\"] }",
        "when = { header = \"x y\" }",
        "when = { host = \"x\" }",
        "when = 5",
        "tiers = { by = \"plan\", quotas = { pro = 5 } }",
        "tiers = { by = \"plan\", quotas = { pro = \"5\" } }",
        "tiers = { by = \"plan\", quotas = { } }",
        "tiers = { by = \"plan\", quotas = { pro = \"5/s\" } }",
        "[rule.tiers]\nby = \"plan\"\nquotas = { pro = \"5/s\" }",
        "leaving = { by = \"plan\", units = { batch = 100 } }",
        "block = { after = 20 }",
        "block = { after = 0, for = \"5s\" }",
        "block = { after = 5, for = \"0s\" }",
        "missing-key = \"ignore\"",
        "exempt = [\"10.0.0.0/33\"]",
        "exempt = 5",
        "count-if = \"failed\"",
        "cost-by = \"failed\"",
        "reserve = \"tokens\"",
        "reserve-at-most = \"1/2\"",
        "reserve-at-most = \"3/2\"",
        "algorithm = \"leaky-bucket\"\ncount-if = \"failed\"",
        "unit = \"\"",
        "track-usage = 1",
        RULE,
        "x",
        "y = ",
        "[rule",
        "\n\n\n\"abc",
        "[other]",
    ] {
        println!("{add:?}\n   {}", toml(&format!("{RULE}{add}\n")));
    }
    for text in ["", "rule = 5", "rule = []", "rule = [5]", "[[rule]]\nname=\"a\"", "[[rule]]\nname=\"a\"\nby=\"ip\"", "[[rule]]\nname=\"a\"\nby=\"user|ip\"\nquota=\"5/s\"",
     "[[rule]]\nname=\"a\"\nby=\"ip+\"\nquota=\"5/s burst 3\"\nalgorithm=\"fixed-window\"",
     "[[rule]]\nname=\"a\"\nby=\"ip\"\nquota=\"5/s burst 3\"\nalgorithm=\"fixed-window\"",
     "[[rule]]\nname=\"\"\nby=\"ip\"\nquota=\"5/s\"",
     "[[rule]]\nname=\"a\"\nby=\"ip\"\nin-flight=0",
     "[[rule]]\nname=\"a\"\nby=\"ip\"\nin-flight=9999999",
     "[[rule]]\nname=\"a\"\nby=\"ip\"\nin-flight=9\ncost=2",
     "[[rule]]\nname=\"a\"\nby=\"ip\"\nin-flight=9\nquota=\"4/s\"",
     "[[rule]]\nname=\"a\"\nby=\"ip\"\nquota=\"400000/s\"\nalgorithm=\"sliding-log\"",
     ] {
        println!("{text:?}\n   {}", toml(text));
    }
    for text in ["", "{", "[]", "{}", "{\"rule\":[]} x", "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"quota\":5}]}",
      "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"quota\":\"5/x\"}]}",
      "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"by\":\"ip\",\n\"quota\":\"5/s\"}]}",
      "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"bye\":\"ip\",\n\"quota\":\"5/s\"}]}",
      "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"quota\":\"5/s\",\n\"tiers\":{\"by\":\"x\",\n\"quotas\":{\"a\":\"1/s\",\n\"a\":\"2/s\"}}}]}",
      "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"me\",\n\"quota\":\"5/s\"}]}",
      "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"cost\":18446744073709551615,\"quota\":\"5/s\"}]}",
      "{\"rule\":[\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"quota\":\"5/s\"},\n{\"name\":\"a\",\n\"by\":\"ip\",\n\"quota\":\"5/s\"}]}",
      ] {
        println!("{text:?}\n   {}", json(text));
    }
}
