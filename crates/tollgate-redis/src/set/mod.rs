pub(crate) mod spread;
