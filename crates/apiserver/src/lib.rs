//! An embedded Kubernetes API server: one generic store and one table of resources as data.
//!
//! It answers what a training user's tools ask (kubectl, Arena, our own daemons), in memory, and knows nothing of GPUs.
//! Resources are rows of a table ([`resource::Resource`]); code of a kind's own exists only where the API has
//! behaviour: binding, log, exec, eviction, the end of a namespace, custom resource definitions.

mod api;
mod collector;
mod discovery;
mod field;
mod fresh;
mod http;
mod kinds;
mod patch;
mod protobuf;
pub mod resource;
mod selector;
mod server;
mod stand_in;
pub mod status;
mod store;
mod table;
mod tls;

pub use server::{Options, Server, ServerError};
pub(crate) use stand_in::openapi;
pub use tls::TlsError;
