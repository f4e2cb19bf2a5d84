//! What the API server holds, kept up to date: one list+watch per kind ([`source`]) into slim caches ([`view`]).

pub mod source;
pub mod view;

pub use source::{Source, watch};
pub use view::View;
