//! `tower-rate-tier` with its storage in memory: GCRA over a dashmap of (user, tier). Always writes
//! its fields. Its identifier sees only header fields, so the key is in one.

use tower::Layer;
use tower_rate_tier::{Quota, RateTier, TierIdentity, TierLimitLayer};

use super::{Contender, Part, service};
use crate::measure::{Layered, Subject};
use crate::scenario::{KEY_FIELD, KeySource, Plan};

const TIER: &str = "t";

pub(super) fn contenders() -> [Contender; 1] {
    [Contender { package: "tower-rate-tier", part: Part::Layer, key: KeySource::Field, build }]
}

fn build(plan: Plan) -> Box<dyn Subject> {
    let tiers = RateTier::builder()
        .tier(TIER, Quota::with_window(plan.burst, plan.window()))
        .default_tier(TIER)
        .build();
    let layer = TierLimitLayer::new(tiers).identifier_fn(|fields| {
        let client = fields.get(KEY_FIELD)?.to_str().ok()?;
        Some(TierIdentity::new(client, TIER))
    });
    Box::new(Layered { service: layer.layer(service()), key: KeySource::Field })
}
