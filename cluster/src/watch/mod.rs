//! What the API server holds, kept up to date: one list+watch per kind ([`source`]) into slim caches ([`store`]).

pub mod fresh;
pub mod source;
pub mod store;

use std::collections::HashSet;

pub use fresh::Freshness;
pub use source::{Source, watch};
pub use store::{Change, Store};

use crate::objects::Kept;

/// Where a watch puts what it hears.
pub trait Sink<K: Kept>: Send + Sync {
    /// A new or changed object.
    fn put(&self, object: K);
    /// A deleted object.
    fn remove(&self, object: &K);
    /// The initial state is complete; what it did not hold has vanished.
    fn settle(&self, uids: &HashSet<Box<str>>);
}
