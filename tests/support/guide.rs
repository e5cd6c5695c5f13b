//! The code blocks of the guide are doctests here: this package has all features of `tollgate`, and
//! the crates that the blocks use.

/// Takes each chapter from its Markdown file.
macro_rules! chapters {
    ($($chapter:ident = $file:literal)*) => {$(
        #[doc = include_str!(concat!("../../crates/tollgate/src/guide/", $file))]
        mod $chapter {}
    )*};
}

chapters! {
    algorithms = "algorithms.md"
    applications = "recipes/applications.md"
    before_a_rule_bites = "before_a_rule_bites.md"
    callers = "recipes/callers.md"
    charges = "charges.md"
    from_axum_governor = "from_axum_governor.md"
    from_governor = "from_governor.md"
    from_redis_script = "from_redis_script.md"
    from_tower = "from_tower.md"
    from_tower_governor = "from_tower_governor.md"
    grpc = "grpc.md"
    in_flight = "in_flight.md"
    keys = "keys.md"
    layers = "layers.md"
    limits_from_rows = "limits_from_rows.md"
    operating = "operating.md"
    outages = "outages.md"
    proxies = "recipes/proxies.md"
    rules_from_a_file = "rules_from_a_file.md"
    scale = "scale.md"
    testing = "testing.md"
    tiers = "tiers.md"
    watching = "watching.md"
    writing_a_store = "writing_a_store.md"
}
