//! Which of several proxies heals a cluster: by a lease in etcd.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::HostgroupId;
use model::fleet::{Decider, HealingView, RecordChange};
use shared_config::{Link, SharedConfig};

/// The monitor's way to the lease and to the records.
#[derive(Debug)]
pub(super) struct ByEtcd(pub(super) Arc<SharedConfig>);

impl Decider for ByEtcd {
    fn name(&self) -> String {
        self.0.line().name
    }

    fn view(&self, writer: HostgroupId) -> HealingView {
        let seen = self.0.seen();
        let away = match &seen.link {
            Link::Up if seen.is_known => None,
            Link::Down(_, why) => Some(why.clone()),
            Link::Off => Some("no configuration is shared".to_owned()),
            Link::Up | Link::Connecting => Some("etcd was not read yet".to_owned()),
        };
        let heal = seen.heal.get(&writer.0).cloned().unwrap_or_default();
        let leading = self.0.leading(writer.0);
        let (since, term) = (leading.map(|one| one.renewed), leading.map(|one| one.made_at));
        HealingView { away, healer: heal.leader, since, obtained: leading.map(|one| one.obtained), term, record: heal.state }
    }

    fn clusters(&self) -> BTreeSet<HostgroupId> {
        let seen = self.0.seen();
        seen.heal.iter().filter(|(_, heal)| heal.state.is_some()).map(|(writer, _)| HostgroupId(*writer)).collect()
    }

    fn scope(&self) -> String {
        self.0.scope()
    }

    fn lead(&self, wanted: &BTreeSet<HostgroupId>, limit: Duration) {
        self.0.lead(wanted.iter().map(|writer| writer.0).collect(), limit);
    }

    fn write(&self, writer: HostgroupId, as_healer: bool, change: RecordChange) -> Result<i64, String> {
        self.0.write_heal(writer.0, as_healer, change).map_err(|error| error.to_string())
    }
}
