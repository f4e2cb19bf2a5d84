//! What the API server holds, kept up to date: one list+watch per kind ([`source`]) into slim caches ([`view`]).

pub mod fresh;
mod sinks;
pub mod source;
mod store;
pub mod view;

pub use fresh::Freshness;
pub use source::{Source, watch};
pub use view::View;
