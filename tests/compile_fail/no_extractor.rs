//! Divides quotas by what is not a key extractor.

use tollgate::extract::ClientIp;
use tollgate::{Key, Policy, PolicyExt};

fn whom_to_trust(policy: Policy) {
    let _ = policy.by(ClientIp::from_header("x-forwarded-for"));
}

fn a_key(policy: Policy) {
    let _ = policy.by(Key::from("x-api-key"));
}

fn the_name_of_a_header(policy: Policy) {
    let _ = policy.by("x-api-key");
}

fn main() {}
