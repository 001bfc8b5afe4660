//! Who belongs to a group, in our own words and bytes.

use raft::eraftpb::ConfState;

use crate::body::{BodyError, Reader, put_u16, put_u64};
use crate::limits::MEMBERS_MAX;

/// The members of a group, in Raft's terms: a joint configuration has both lists of voters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Members {
    /// Nodes that vote.
    pub voters: Vec<u64>,
    /// Nodes that only listen.
    pub learners: Vec<u64>,
    /// The voters a joint configuration leaves.
    pub voters_outgoing: Vec<u64>,
    /// Voters that become learners when it is left.
    pub learners_next: Vec<u64>,
    /// Whether it is left by itself.
    pub auto_leave: bool,
}

impl Members {
    /// Voters alone.
    pub fn voters(voters: &[u64]) -> Self {
        Self { voters: voters.to_vec(), ..Self::default() }
    }

    /// Whether this node is all there is, and may lead at once.
    pub fn is_only_voter(&self, node_id: u64) -> bool {
        self.voters == [node_id] && self.voters_outgoing.is_empty()
    }

    pub(crate) fn is_sound(&self) -> bool {
        let lists = [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next];
        !self.voters.is_empty()
            && lists.iter().all(|list| list.len() <= MEMBERS_MAX && !list.contains(&0))
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        for list in [&self.voters, &self.learners, &self.voters_outgoing, &self.learners_next] {
            put_u16(out, list.len() as u16);
            for &member in list {
                put_u64(out, member);
            }
        }
        out.push(u8::from(self.auto_leave));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let mut members = Self::default();
        for list in [
            &mut members.voters,
            &mut members.learners,
            &mut members.voters_outgoing,
            &mut members.learners_next,
        ] {
            let count = usize::from(reader.u16()?);
            if count > MEMBERS_MAX {
                return Err(BodyError("more members than a group may have"));
            }
            for _ in 0..count {
                list.push(reader.u64()?);
            }
        }
        members.auto_leave = reader.u8()? != 0;
        Ok(members)
    }
}

impl From<&ConfState> for Members {
    fn from(state: &ConfState) -> Self {
        Self {
            voters: state.voters.clone(),
            learners: state.learners.clone(),
            voters_outgoing: state.voters_outgoing.clone(),
            learners_next: state.learners_next.clone(),
            auto_leave: state.auto_leave,
        }
    }
}

impl From<&Members> for ConfState {
    fn from(members: &Members) -> Self {
        Self {
            voters: members.voters.clone(),
            learners: members.learners.clone(),
            voters_outgoing: members.voters_outgoing.clone(),
            learners_next: members.learners_next.clone(),
            auto_leave: members.auto_leave,
            ..Self::default()
        }
    }
}
