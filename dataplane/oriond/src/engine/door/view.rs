//! What who asks is told of the sessions that there are: of his own programs', and of nobody else's.

use orion_wire::view::{Offer, PROGRAM_BYTES_MAX, PROGRAMS_MAX, Program, UNKNOWN, Use, View};

use crate::engine::peer::Source;
use crate::meter::Reading;

/// Who is at a connection, as far as it matters to whoever asks about sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub source: Source,
    /// By his own word: what his pid means, and where. A wrong one spoils what he is shown himself.
    pub home: [u8; 16],
    pub pid: u32,
    pub program: String,
}

impl Client {
    /// Whether this is the same user's, or from the same machine where the network cannot tell users apart.
    fn is_of(&self, other: &Client) -> bool {
        self.source == other.source && self.source != Source::Unknown
    }

    fn has_home_of(&self, other: &Client) -> bool {
        self.home == other.home && self.home != [0; 16]
    }
}

/// `sessions` are the clients of all of them, and what their vGPUs use. Where this server has one tenant all are his.
pub fn view<'a>(
    offer: &Offer,
    sessions: impl Iterator<Item = (&'a Client, Vec<Reading>)>,
    asks: &Client,
    one_tenant: bool,
) -> View {
    let own = sessions.filter(|(client, _)| one_tenant || client.is_of(asks));
    let programs = own.take(PROGRAMS_MAX).map(|(client, readings)| Program {
        pid: if client.has_home_of(asks) { client.pid } else { 0 },
        name: cut(&client.program),
        vgpus: readings.iter().zip(0..).map(|(r, device)| used(*r, device)).collect(),
    });
    View { offer: offer.clone(), programs: programs.collect() }
}

/// Without leases all sessions have the vGPUs of the offer, in its order.
fn used(Reading { total, used }: Reading, device: u32) -> Use {
    Use { device, total, used, busy_percent: UNKNOWN }
}

fn cut(text: &str) -> String {
    let end = (0..=text.len().min(PROGRAM_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(source: Source, home: u8, pid: u32) -> Client {
        Client { source, home: [home; 16], pid, program: format!("program {pid}") }
    }

    fn seen(asks: &Client, one_tenant: bool) -> Vec<(u32, u64)> {
        let sessions = [
            client(Source::User(7), 1, 10),
            client(Source::User(7), 2, 11),
            client(Source::User(8), 1, 12),
            client(Source::V4([10, 0, 0, 1]), 1, 13),
            client(Source::Unknown, 1, 14),
        ];
        let readings = |c: &Client| vec![Reading { total: 100, used: c.pid.into() }];
        let view = view(&Offer::default(), sessions.iter().map(|c| (c, readings(c))), asks, one_tenant);
        view.programs.iter().map(|p| (p.pid, p.vgpus[0].used)).collect()
    }

    #[test]
    fn nobody_is_told_of_others_and_pids_are_those_that_he_could_use() {
        // The second is in another pid namespace, a container say.
        assert_eq!(seen(&client(Source::User(7), 1, 1), false), [(10, 10), (0, 11)]);
        assert_eq!(seen(&client(Source::User(8), 2, 1), false), [(0, 12)]);
        assert_eq!(seen(&client(Source::V4([10, 0, 0, 1]), 1, 1), false), [(13, 13)]);
        assert_eq!(seen(&client(Source::User(9), 1, 1), false), []);
        assert_eq!(seen(&client(Source::Unknown, 1, 1), false), []);
        assert_eq!(seen(&client(Source::User(7), 0, 1), false), [(0, 10), (0, 11)]);
        // One tenant's server: all are his.
        assert_eq!(seen(&client(Source::User(9), 1, 1), true).len(), 5);
    }
}
