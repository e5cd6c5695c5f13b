//! A store without a layer.

use tollgate::store::{Check, Store, Times};
use tollgate::{Key, Policy};

use super::measure::{Decide, failed};
use super::scenario::Draws;
use crate::measure::Answers;

#[derive(Clone)]
pub(crate) struct Alone<S> {
    pub(crate) store: S,
    pub(crate) policy: Policy,
}

impl<S: Store> Decide for Alone<S> {
    async fn decide(&mut self, draws: &mut Draws, answers: &mut Answers) {
        let key = Key::from(draws.draw().name.as_str());
        let verdict = self.store.acquire(&[Check::new(&self.policy, &key, 1)], Times::ONCE);
        match verdict.wait().await {
            Ok(verdict) if verdict.is_granted() => answers.allowed += 1,
            Ok(_) => answers.denied += 1,
            Err(error) => failed(answers, &error),
        }
    }
}
