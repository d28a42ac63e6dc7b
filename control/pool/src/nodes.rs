//! All nodes of a pool, by name, and in the order in which they are looked at for room: a pool of a thousand nodes is
//! not searched whole for each vGPU.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::Place;
use crate::ask::Ask;
use crate::node::Node;

#[derive(Debug, Clone, Default)]
pub struct Nodes {
    by_name: BTreeMap<String, Node>,
    /// Names by [`Node::freedom`]. What is free of a node changes here alone.
    by_freedom: BTreeMap<u64, BTreeSet<String>>,
}

impl Nodes {
    pub fn get(&self, name: &str) -> Option<&Node> {
        self.by_name.get(name)
    }

    pub fn values(&self) -> impl Iterator<Item = &Node> {
        self.by_name.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// What changes of them leaves alone what is free.
    pub(crate) fn standings(&mut self) -> impl Iterator<Item = &mut Node> {
        self.by_name.values_mut()
    }

    /// Likewise.
    pub(crate) fn standing(&mut self, name: &str) -> Option<&mut Node> {
        self.by_name.get_mut(name)
    }

    /// Those of which least is free first; of several the one whose name is first.
    pub(crate) fn fullest_first(&self) -> impl Iterator<Item = &Node> {
        self.by_freedom.values().flatten().map(|name| &self.by_name[name])
    }

    /// Those of which most is free first; of several the one whose name is first.
    pub(crate) fn emptiest_first(&self) -> impl Iterator<Item = &Node> {
        self.by_freedom.values().rev().flatten().map(|name| &self.by_name[name])
    }

    /// In place of what had its name.
    pub(crate) fn insert(&mut self, node: Node) {
        let name = node.report.name.clone();
        self.remove(&name);
        self.by_freedom.entry(node.freedom()).or_default().insert(name.clone());
        self.by_name.insert(name, node);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(node) = self.by_name.remove(name) {
            self.is_not_at(node.freedom(), name);
        }
    }

    /// Takes room for one more on the GPU with this number.
    pub(crate) fn take(&mut self, name: &str, number: usize, ask: &Ask) -> Place {
        self.change(name, |node| node.take(number, ask)).expect("just chosen")
    }

    /// Takes exactly this room. False if it is not there.
    pub(crate) fn take_again(&mut self, place: &Place) -> bool {
        self.change(&place.node, |node| node.take_again(place)).unwrap_or(false)
    }

    /// What a place had taken is free again.
    pub(crate) fn give_back(&mut self, place: &Place) {
        self.change(&place.node, |node| node.give_back(place)).expect("a node with allocations stays");
    }

    fn change<T>(&mut self, name: &str, change: impl FnOnce(&mut Node) -> T) -> Option<T> {
        let node = self.by_name.get_mut(name)?;
        let before = node.freedom();
        let done = change(node);
        let after = node.freedom();
        if before != after {
            self.is_not_at(before, name);
            self.by_freedom.entry(after).or_default().insert(name.to_owned());
        }
        Some(done)
    }

    fn is_not_at(&mut self, freedom: u64, name: &str) {
        let names = self.by_freedom.get_mut(&freedom).expect("each node stands where its freedom says");
        names.remove(name);
        if names.is_empty() {
            self.by_freedom.remove(&freedom);
        }
    }
}

impl FromIterator<Node> for Nodes {
    fn from_iter<I: IntoIterator<Item = Node>>(all: I) -> Nodes {
        let mut nodes = Nodes::default();
        all.into_iter().for_each(|node| nodes.insert(node));
        nodes
    }
}
