//! Several etcd members that form a cluster.

use crate::etcd::{Etcd, EtcdOptions};
use crate::ports::free_port;

/// A cluster whose members are killed when it is dropped.
#[derive(Debug)]
pub struct EtcdCluster {
    /// The members.
    pub members: Vec<Etcd>,
}

impl EtcdCluster {
    /// Starts so many members and waits until all answer.
    pub fn start(count: usize, options: &EtcdOptions) -> Self {
        let mut members: Vec<_> = (0..count)
            .map(|number| Etcd::new(&format!("member-{number}"), options.clone(), free_port()))
            .collect();
        let peers: Vec<_> = members.iter().map(Etcd::peer).collect();
        let peers = peers.join(",");
        for member in &mut members {
            member.set_peers(&peers);
            member.spawn();
        }
        members.iter_mut().for_each(Etcd::wait_healthy);
        Self { members }
    }

    /// Where clients find them.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(Etcd::endpoint).collect()
    }

    /// Which member leads, by its own word.
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|it| it.metric("etcd_server_is_leader") > 0.5)
    }
}
