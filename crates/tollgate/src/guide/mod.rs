#![doc = include_str!("links.md")]
#![doc = include_str!("README.md")]
// The package `tests` compiles the examples, with all features: `tests/support/guide.rs`.
#![cfg(not(doctest))]

/// Makes modules of the Markdown files in this folder.
///
/// Each file ends with its links for a code host. The first definition of a link counts, so those
/// of `links.md` for rustdoc come before.
macro_rules! chapters {
    ($folder:literal: $($chapter:ident)*) => {$(
        #[cfg_attr(feature = "axum", doc = "[`matched_path`]: crate::extract::matched_path()")]
        #[doc = include_str!("links.md")]
        #[doc = include_str!(concat!($folder, stringify!($chapter), ".md"))]
        pub mod $chapter {}
    )*};
}

chapters! { "":
    algorithms
    before_a_rule_bites
    capacity
    charges
    from_axum_governor
    from_governor
    from_redis_script
    from_tower
    from_tower_governor
    grpc
    in_flight
    keys
    layers
    limits_from_rows
    operating
    outages
    production
    rules_from_a_file
    scale
    testing
    tiers
    together
    upgrading
    watching
    when_limits_seem_wrong
    writing_a_store
}

#[doc = include_str!("links.md")]
#[doc = include_str!("recipes/README.md")]
pub mod recipes {
    chapters! { "recipes/":
        applications
        callers
        proxies
    }
}
