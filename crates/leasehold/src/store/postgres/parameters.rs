//! Parameters of statements: arrays, whose elements are the columns of rows.

use tokio_postgres::types::{ToSql, Type};

use crate::store::api::Key;
use crate::store::tables::columns;

/// A parameter of a statement, and its type.
pub(super) type Parameter<'p> = (&'p (dyn ToSql + Sync), Type);

pub(super) fn texts(values: &(impl ToSql + Sync)) -> Parameter<'_> {
    (values, Type::TEXT_ARRAY)
}

pub(super) fn numbers(values: &(impl ToSql + Sync)) -> Parameter<'_> {
    (values, Type::INT8_ARRAY)
}

pub(super) fn classes(values: &(impl ToSql + Sync)) -> Parameter<'_> {
    (values, Type::INT2_ARRAY)
}

/// The keys of rows, by column.
#[derive(Debug, Default)]
pub(super) struct Columns<'a> {
    namespaces: Vec<&'a str>,
    tenants: Vec<&'a str>,
    pub(super) names: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    pub(super) fn of(keys: impl Iterator<Item = &'a Key>) -> Self {
        let mut all = Self::default();
        keys.for_each(|key| all.push(key));
        all
    }

    pub(super) fn push(&mut self, key: &'a Key) {
        let (namespace, tenant, name) = columns(key);
        self.namespaces.push(namespace);
        self.tenants.push(tenant);
        self.names.push(name);
    }

    /// Those of the statement.
    pub(super) fn parameters(&self) -> [Parameter<'_>; 3] {
        [
            texts(&self.namespaces),
            texts(&self.tenants),
            texts(&self.names),
        ]
    }
}
