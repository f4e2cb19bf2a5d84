//! Slim caches of what the API server holds, fed by one reflector per kind ([`caches`]).

pub mod caches;
mod event_handlers;

pub use caches::Caches;
