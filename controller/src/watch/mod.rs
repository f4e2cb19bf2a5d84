//! What the controller keeps of what the API server holds: slim caches, kept by one watch per kind ([`view`]).

mod sinks;
pub mod view;

pub use view::View;
