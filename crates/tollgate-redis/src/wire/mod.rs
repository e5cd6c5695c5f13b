pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod script;
pub(crate) mod terms;
