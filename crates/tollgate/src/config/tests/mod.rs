//! Tests of whole files.

mod files;
mod keys;
mod mistakes;
mod requests;
