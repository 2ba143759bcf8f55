//! Tables: what `kubectl get` prints, made by the server.

use crate::resource::Columns;

/// The columns of a built-in resource that has its own.
pub(crate) fn columns_of(_group: &str, _plural: &str) -> Option<Columns> {
    None
}
