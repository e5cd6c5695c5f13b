//! The messages of a WebSocket.

use tollgate::{Key, Limiter, Policy, Quota};
use tollgate_tests::{clock, store};

fn messages() -> Limiter {
    Limiter::new([Policy::new("messages", Quota::per_minute(10).burst(2))])
}

/// The answer to a text that the socket of this user received.
async fn answer(messages: &Limiter, user: u64, text: &str) -> String {
    match messages.check(&Key::from(user), 1).await {
        Ok(_permit) => format!("you said {text}"),
        Err(denial) => {
            let seconds = denial.retry_after_seconds().unwrap_or(1);
            format!("lost {text}: wait for {seconds} s")
        }
    }
}

#[tokio::test]
async fn messages_beyond_the_quota_are_lost_and_the_user_is_notified() {
    crate::guide::shows("recipes/callers.md", include_str!("web_sockets.rs"), &["fn messages"]);
    let messages = messages().store(store(&clock()));
    let mut answers = Vec::new();
    for text in ["a", "b", "c"] {
        answers.push(answer(&messages, 7, text).await);
    }
    assert_eq!(answers, ["you said a", "you said b", "lost c: wait for 6 s"]);
}
