//! The example of plans.

use crate::program::start;

#[test]
fn the_tiers_example_grants_each_plan_its_quota() {
    let server = start("tiers", &["127.0.0.1:0"]);
    let get = |path, api_key| server.get_with(path, &[("x-api-key", api_key)]);
    for (api_key, name, quota) in
        [("key-of-fay", "fay", 20), ("key-of-pat", "pat", 200), ("key-of-eve", "eve", 2_000)]
    {
        let answer = get("/export", api_key);
        assert_eq!((answer.status, answer.remaining("api")), (200, quota - 10), "an export costs ten");
        assert_eq!(answer.field("ratelimit-policy", "api", "q"), quota);
        assert_eq!(get("/", api_key).status, 200);
        for _ in 0..30 {
            let me = get("/me", api_key);
            assert_eq!((me.status, me.body), (200, format!("{name}: {} of {quota} left\n", quota - 11)));
        }
    }
    get("/export", "key-of-fay").assert_refused_by(&["api"]);
    assert_eq!(get("/export", "key-of-pat").status, 200);
    assert_eq!(get("/", "key-of-a-stranger").status, 401);
    assert_eq!(server.get("/").status, 401);
}
