//! What the controller keeps of what the API server holds: slim caches, kept by one watch per kind ([`caches`]).

pub mod caches;
mod event_handlers;

pub use caches::Caches;
