//! What is asked of Cassandra, in its language.
//!
//! ```text
//! items, state  key blob PRIMARY KEY | epoch bigint | serial bigint | content blob     one row a key (see `guira_row`)
//! owner         id int PRIMARY KEY (0) | format int | epoch bigint | holder text | renewals bigint | lease_ms int
//! ```
//! Always true: rows are read at consistency SERIAL and written by transactions at SERIAL, so that there is one order of all of them;
//! the driver repeats nothing by itself.

use std::{fmt, ops::ControlFlow, sync::Arc, time::Duration};

use guira_row::{Ask, Epoch, Heard, Row, Stamp};
use scylla::{
    client::{execution_profile::ExecutionProfile, session::Session, session_builder::SessionBuilder},
    errors::{DbError, ExecutionError, RequestAttemptError},
    policies::retry::FallthroughRetryPolicy,
    response::{PagingState, query_result::QueryResult},
    serialize::row::SerializeRow,
    statement::{Consistency, SerialConsistency, prepared::PreparedStatement},
    value::{CqlValue, Row as CqlRow},
};

use super::{
    CassandraAddress, CassandraError,
    lease::{Claim, LEASE},
};
use crate::state;

/// How long a request may take before it counts as lost. Cassandra gives up on a transaction after 1.8 s by itself.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a word about the lease may take: a node that does not answer leaves time to ask another.
const LEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a connection is asked for a sign of life, and how long that may take: a machine that went dark says nothing.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// How long a connection may take to be made.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to find the cluster at the start.
const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// And to have all that a store needs there.
const OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Copies of each row if the keyspace is made here, as far as there are nodes.
const REPLICAS: usize = 3;

/// Rows that a scan asks for at once: half a gigabyte of the largest there may be, and 64 MiB of items as large as they are by default.
const PAGE_LEN: i32 = 64;

/// What is in a row: an encoded record, state or floors.
pub(super) type Content = Arc<[u8]>;

/// A failure, as Cassandra or its driver tells it.
#[derive(Debug)]
pub(super) struct Told {
    /// It never happened, and never will.
    pub(super) is_refused: bool,
    pub(super) line: String,
}

impl Told {
    fn lost(line: impl fmt::Display) -> Self {
        Self { is_refused: false, line: line.to_string().replace(['\n', '\r'], " ") }
    }
}

impl From<ExecutionError> for Told {
    fn from(error: ExecutionError) -> Self {
        let is_refused = match &error {
            // Nothing was sent.
            ExecutionError::EmptyPlan | ExecutionError::ConnectionPoolError(_) | ExecutionError::BadQuery(_) => true,
            ExecutionError::LastAttemptError(error) => match error {
                RequestAttemptError::SerializationError(_)
                | RequestAttemptError::CqlRequestSerialization(_)
                | RequestAttemptError::UnableToAllocStreamId => true,
                // Before a transaction is begun. That too few nodes are there, or that there is too much to do, may also be said once
                // it has been accepted (with `paxos_variant: v1`).
                RequestAttemptError::DbError(error, _) => {
                    matches!(error, DbError::IsBootstrapping | DbError::Unauthorized | DbError::Unprepared { .. })
                }
                _ => false,
            },
            _ => false,
        };
        Self { is_refused, ..Self::lost(error) }
    }
}

/// One of the tables with a row for each key.
#[derive(Debug)]
pub(super) struct RowTable {
    read: PreparedStatement,
    /// An update, too: what an INSERT makes has a marker that outlives what is in the row.
    insert: PreparedStatement,
    update: PreparedStatement,
}

/// A keyspace.
pub(super) struct Tables {
    session: Session,
    pub(super) items: RowTable,
    pub(super) state: RowTable,
    scan: PreparedStatement,
    /// Rows that come together with a key's in the order of rows, and those that come after.
    scan_beside: PreparedStatement,
    scan_behind: PreparedStatement,
    read_owner: PreparedStatement,
    insert_owner: PreparedStatement,
    take_owner: PreparedStatement,
    renew_owner: PreparedStatement,
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tables")
    }
}

impl Tables {
    /// Connects, and makes the keyspace if it is not there.
    pub(super) async fn open(address: &CassandraAddress) -> Result<Self, CassandraError> {
        let opened = tokio::time::timeout(OPEN_TIMEOUT, Self::open_slowly(address)).await;
        opened.map_err(|_| CassandraError::Unreachable("no answer".into()))?
    }

    async fn open_slowly(address: &CassandraAddress) -> Result<Self, CassandraError> {
        let CassandraAddress { nodes, keyspace } = address;
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            .request_timeout(Some(REQUEST_TIMEOUT))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .build();
        let builder = SessionBuilder::new()
            .known_nodes(nodes)
            .connection_timeout(CONNECTION_TIMEOUT)
            .keepalive_interval(KEEPALIVE)
            .keepalive_timeout(KEEPALIVE)
            .default_execution_profile_handle(profile.into_handle());
        let session = tokio::time::timeout(SESSION_TIMEOUT, builder.build())
            .await
            .map_err(|_| CassandraError::Unreachable("no answer".into()))?
            .map_err(|error| CassandraError::Unreachable(one_line(&error)))?;
        let failed = |error: &dyn fmt::Display| CassandraError::Failed(one_line(error));
        let replicas = session.get_cluster_state().get_nodes_info().len().clamp(1, REPLICAS);
        let columns = "key blob PRIMARY KEY, epoch bigint, serial bigint, content blob";
        for statement in [
            format!(
                "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = \
                 {{'class': 'NetworkTopologyStrategy', 'replication_factor': {replicas}}}"
            ),
            format!("CREATE TABLE IF NOT EXISTS {keyspace}.items ({columns})"),
            format!("CREATE TABLE IF NOT EXISTS {keyspace}.state ({columns})"),
            format!(
                "CREATE TABLE IF NOT EXISTS {keyspace}.owner (id int PRIMARY KEY, format int, epoch bigint, holder text, \
                 renewals bigint, lease_ms int)"
            ),
        ] {
            // A schema change waits for all nodes, and may take longer than a request.
            let mut statement = scylla::statement::Statement::new(statement);
            statement.set_request_timeout(Some(SESSION_TIMEOUT));
            session.query_unpaged(statement, ()).await.map_err(|error| failed(&error))?;
        }
        let prepare = async |text: String, consistency: Consistency| {
            let mut prepared = session.prepare(text).await.map_err(|error| failed(&error))?;
            prepared.set_consistency(consistency);
            Ok::<_, CassandraError>(prepared)
        };
        let row_table = async |name: &str| {
            Ok::<_, CassandraError>(RowTable {
                read: prepare(
                    format!("SELECT epoch, serial, content FROM {keyspace}.{name} WHERE key = ?"),
                    Consistency::Serial,
                )
                .await?,
                insert: prepare(
                    format!(
                        "UPDATE {keyspace}.{name} USING TTL ? SET epoch = ?, serial = ?, content = ? WHERE key = ? \
                         IF epoch = NULL"
                    ),
                    Consistency::Quorum,
                )
                .await?,
                update: prepare(
                    format!(
                        "UPDATE {keyspace}.{name} USING TTL ? SET epoch = ?, serial = ?, content = ? WHERE key = ? \
                         IF epoch = ? AND serial = ?"
                    ),
                    Consistency::Quorum,
                )
                .await?,
            })
        };
        let (items, state) = (row_table("items").await?, row_table("state").await?);
        let scan = async |which: &str| {
            let text = format!("SELECT key, epoch, serial, content FROM {keyspace}.items {which}");
            let mut scan = prepare(text, Consistency::Quorum).await?;
            scan.set_page_size(PAGE_LEN);
            Ok::<_, CassandraError>(scan)
        };
        let scan_beside = scan("WHERE token(key) = token(?)").await?;
        let scan_behind = scan("WHERE token(key) > token(?)").await?;
        let scan = scan("").await?;
        let mut read_owner = prepare(
            format!("SELECT format, epoch, renewals, holder, lease_ms FROM {keyspace}.owner WHERE id = 0"),
            Consistency::Serial,
        )
        .await?;
        let insert_owner = prepare(
            format!(
                "INSERT INTO {keyspace}.owner (id, format, epoch, renewals, holder, lease_ms) VALUES (0, ?, ?, ?, ?, ?) \
                 IF NOT EXISTS"
            ),
            Consistency::Quorum,
        )
        .await?;
        let take_owner = prepare(
            format!(
                "UPDATE {keyspace}.owner SET epoch = ?, renewals = ?, holder = ?, lease_ms = ? WHERE id = 0 \
                 IF epoch = ? AND renewals = ?"
            ),
            Consistency::Quorum,
        )
        .await?;
        let mut renew_owner = prepare(
            format!("UPDATE {keyspace}.owner SET renewals = ?, holder = ? WHERE id = 0 IF epoch = ? AND renewals = ?"),
            Consistency::Quorum,
        )
        .await?;
        read_owner.set_request_timeout(Some(LEASE_TIMEOUT));
        renew_owner.set_request_timeout(Some(LEASE_TIMEOUT));
        Ok(Self {
            session,
            items,
            state,
            scan,
            scan_beside,
            scan_behind,
            read_owner,
            insert_owner,
            take_owner,
            renew_owner,
        })
    }

    /// What is set on the node that answers otherwise than what is promised asks for; a line for each.
    pub(super) async fn settings_to_tell(&self) -> Vec<String> {
        let text = "SELECT name, value FROM system_views.settings WHERE name IN ('paxos_variant', 'commitlog_sync')";
        let Ok(found) = self.session.query_unpaged(text, ()).await else { return Vec::new() };
        let Ok(rows) = found.into_rows_result() else { return Vec::new() };
        let Ok(rows) = rows.rows::<(String, Option<String>)>() else { return Vec::new() };
        let told = rows.flatten().filter_map(|(name, value)| match (&*name, value?) {
            ("commitlog_sync", value) if value == "periodic" => Some(format!(
                "Cassandra has commitlog_sync: {value}: when a node loses power, what was acknowledged may be lost; set batch on all nodes"
            )),
            ("paxos_variant", value) if value.starts_with("v1") => {
                Some(format!("Cassandra has paxos_variant: {value}: reads and changes are slower than with v2"))
            }
            _ => None,
        });
        told.collect()
    }

    async fn execute(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<QueryResult, Told> {
        Ok(self.session.execute_unpaged(statement, values).await?)
    }

    /// Carries out a transaction; whether it was applied.
    async fn transact(&self, statement: &PreparedStatement, values: impl SerializeRow) -> Result<bool, Told> {
        let rows = self.execute(statement, values).await?.into_rows_result().map_err(Told::lost)?;
        // The first column says so; the others, if there are any, are what was there instead.
        let row = rows.first_row::<CqlRow>().map_err(Told::lost)?;
        match row.columns.into_iter().next() {
            Some(Some(CqlValue::Boolean(applied))) => Ok(applied),
            other => Err(Told::lost(format_args!("{other:?} to a transaction"))),
        }
    }

    /// Asks a row, and says what is wrong if nothing was heard.
    pub(super) async fn ask(
        &self,
        table: &RowTable,
        key: &[u8],
        ask: Ask<Content>,
        ttl_s: i32,
    ) -> (Heard<Content>, Option<String>) {
        let heard = match ask {
            Ask::Read => self.read(table, key).await.map(Heard::Row),
            Ask::Write { expected, row } => {
                let Row { stamp: Stamp { epoch, serial }, content } = row;
                let applied = match expected {
                    None => self.transact(&table.insert, (ttl_s, epoch.0, serial, content.as_deref(), key)).await,
                    Some(Stamp { epoch: old, serial: old_serial }) => {
                        let values = (ttl_s, epoch.0, serial, content.as_deref(), key, old.0, old_serial);
                        self.transact(&table.update, values).await
                    }
                };
                applied.map(|applied| if applied { Heard::Applied } else { Heard::NotApplied })
            }
        };
        match heard {
            Ok(heard) => (heard, None),
            Err(Told { is_refused: true, line }) => (Heard::Refused, Some(line)),
            Err(Told { is_refused: false, line }) => (Heard::Lost, Some(line)),
        }
    }

    async fn read(&self, table: &RowTable, key: &[u8]) -> Result<Option<Row<Content>>, Told> {
        let rows = self.execute(&table.read, (key,)).await?.into_rows_result().map_err(Told::lost)?;
        let row = rows.maybe_first_row::<(Option<i64>, Option<i64>, Option<&[u8]>)>().map_err(Told::lost)?;
        let (epoch, serial, content) = match row {
            // Of a row that has ended, nothing is left.
            None | Some((None, None, _)) => return Ok(None),
            Some((Some(epoch), Some(serial), content)) => (epoch, serial, content),
            Some(_) => return Err(Told::lost("a row has half a stamp, which no guira has written")),
        };
        Ok(Some(Row { stamp: Stamp { epoch: Epoch(epoch), serial }, content: content.map(Content::from) }))
    }

    /// Visits the contents of items, each with its row's stamp, in the order of their keys' tokens, and by their bytes if those are the same:
    /// of all, or of those behind a key. False ends it.
    pub(super) async fn scan(
        &self,
        behind: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], Stamp, &[u8]) -> bool,
    ) -> Result<(), Told> {
        let Some(behind) = behind else { return self.visit(&self.scan, (), &mut visit).await.map(drop) };
        let mut beside = |key: &[u8], stamp, content: &[u8]| key <= behind || visit(key, stamp, content);
        match self.visit(&self.scan_beside, (behind,), &mut beside).await? {
            ControlFlow::Break(()) => Ok(()),
            ControlFlow::Continue(()) => self.visit(&self.scan_behind, (behind,), &mut visit).await.map(drop),
        }
    }

    async fn visit(
        &self,
        statement: &PreparedStatement,
        values: impl SerializeRow,
        visit: &mut impl FnMut(&[u8], Stamp, &[u8]) -> bool,
    ) -> Result<ControlFlow<()>, Told> {
        let mut paging = PagingState::start();
        loop {
            let (page, next) = self.session.execute_single_page(statement, &values, paging).await?;
            let rows = page.into_rows_result().map_err(Told::lost)?;
            for row in rows.rows::<(&[u8], Option<i64>, Option<i64>, Option<&[u8]>)>().map_err(Told::lost)? {
                let (key, epoch, serial, content) = row.map_err(Told::lost)?;
                let (Some(epoch), Some(serial), Some(content)) = (epoch, serial, content) else { continue };
                if !visit(key, Stamp { epoch: Epoch(epoch), serial }, content) {
                    return Ok(ControlFlow::Break(()));
                }
            }
            match next.into_paging_control_flow() {
                ControlFlow::Break(()) => return Ok(ControlFlow::Continue(())),
                ControlFlow::Continue(next) => paging = next,
            }
        }
    }

    /// Who the owner is; `None` if there never was one.
    pub(super) async fn read_owner(&self) -> Result<Option<(i32, Claim)>, Told> {
        let rows = self.execute(&self.read_owner, ()).await?.into_rows_result().map_err(Told::lost)?;
        let row = rows.maybe_first_row::<(i32, i64, i64, String, i32)>().map_err(Told::lost)?;
        Ok(row.map(|(format, epoch, renewals, holder, lease_ms)| {
            let lease = Duration::from_millis(u64::try_from(lease_ms).unwrap_or(0));
            (format, Claim { epoch: Epoch(epoch), renewals, holder, lease })
        }))
    }

    /// Makes `holder` the owner after `before`; the claim, if nobody was faster.
    pub(super) async fn take(&self, before: Option<&Claim>, holder: &str) -> Result<Option<Claim>, Told> {
        let (format, lease_ms) = (state::FORMAT as i32, LEASE.as_millis() as i32);
        let made = |epoch, renewals| Claim { epoch: Epoch(epoch), renewals, holder: holder.into(), lease: LEASE };
        let (claim, applied) = match before {
            None => {
                let claim = made(1, 0);
                (claim, self.transact(&self.insert_owner, (format, 1_i64, 0_i64, holder, lease_ms)).await?)
            }
            Some(before) => {
                let claim = made(before.epoch.0 + 1, before.renewals + 1);
                let values = (claim.epoch.0, claim.renewals, holder, lease_ms, before.epoch.0, before.renewals);
                (claim, self.transact(&self.take_owner, values).await?)
            }
        };
        Ok(applied.then_some(claim))
    }

    /// Says that the owner lives, or, with an empty `holder`, that it goes; whether it was the owner, and nothing else was said since.
    pub(super) async fn renew(&self, epoch: Epoch, renewals: i64, holder: &str) -> Result<bool, Told> {
        self.transact(&self.renew_owner, (renewals + 1, holder, epoch.0, renewals)).await
    }
}

pub(super) fn one_line(error: &dyn fmt::Display) -> String {
    error.to_string().replace(['\n', '\r'], " ")
}

#[cfg(test)]
impl Tables {
    /// Has something carried out that no store says.
    pub(super) async fn say(&self, text: &str) {
        self.session.query_unpaged(text, ()).await.expect("a Cassandra that runs");
    }
}
