//! How a lease is signed by a pool's controller, shown by a client and looked at by oriond, which asks nobody for it.
//!
//! The controller has a secret of its own, and makes of it a key for each oriond, which that oriond is told. A lease is
//! signed by HMAC-SHA256 under that key. The signature goes to the client together with the lease, but the client does
//! not pass it on: it proves that it has it (see [`crate::proof`]), over the lease itself and both nonces. So who hears
//! a client talk to oriond has nothing to come in with, and a changed lease does not fit its proof.
//!
//! What this does not do: who hears the controller's answer has the signature, so that answer crosses networks
//! encrypted. And an oriond can sign leases for itself, which is nothing that it could not do anyway, but for no other
//! oriond.

use orion_wire::lease::Lease;
use orion_wire::refusal::{Reason, Refusal};

use crate::proof::{Proof, Said, Token, hmac, is_same};

/// Of one oriond, from its start to its end: another one on the same node has another key.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseKey([u8; 32]);

/// What the controller makes keys of.
#[derive(Clone)]
pub struct MasterKey([u8; 32]);

/// A number that each oriond draws at its start.
pub type Instance = [u8; 16];

/// A lease, as its client has it.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedLease {
    pub body: Vec<u8>,
    pub signature: [u8; 32],
}

impl MasterKey {
    pub fn new(secret: [u8; 32]) -> MasterKey {
        MasterKey(secret)
    }

    pub fn key_of(&self, node: &str, instance: &Instance) -> LeaseKey {
        LeaseKey(hmac(&self.0, &[b"orion oriond's lease key", node.as_bytes(), instance]))
    }
}

impl LeaseKey {
    pub fn from_bytes(bytes: [u8; 32]) -> LeaseKey {
        LeaseKey(bytes)
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub fn sign(&self, lease: &Lease) -> SignedLease {
        let body = lease.encode();
        let signature = self.signature(&body);
        SignedLease { body, signature }
    }

    fn signature(&self, body: &[u8]) -> [u8; 32] {
        hmac(&self.0, &[b"orion lease", body])
    }

    /// The lease, if whoever sent `request` has been given it by the controller and may begin a session on `node` with
    /// it now; or why not, in words. Whether it was used before the caller has to know.
    pub fn check(&self, shown: &Shown<'_>, node: &str, now_unix_ms: u64) -> Result<(Lease, Token), Refusal> {
        let (lease, token) = self.recognize(shown, node)?;
        if now_unix_ms >= lease.begins_before_unix_ms {
            let late = now_unix_ms - lease.begins_before_unix_ms;
            let text = format!(
                "the lease ran out {late} ms ago by the controller's clock; run the program again, and if that does \
                 not help start orion-agent there again, which asks for that clock"
            );
            return Err(Refusal::new(Reason::NotPermitted, text));
        }
        Ok((lease, token))
    }

    /// The lease, if whoever sent `request` has been given it by the controller for `node`, whether or not a session
    /// may still begin with it; or why not, in words.
    pub fn recognize(&self, shown: &Shown<'_>, node: &str) -> Result<(Lease, Token), Refusal> {
        let refuse = |text: String| Refusal::new(Reason::NotPermitted, text);
        let token = Token::of_signature(self.signature(shown.lease));
        let is_signed = shown.proof.is_some_and(|p| is_same(&p, &token.client_proof(shown.said, shown.request)));
        let lease = Lease::decode(shown.lease).map_err(|fault| refuse(format!("the lease is damaged: {fault}")))?;
        // Whatever somebody writes into a lease, these words let nobody in.
        if lease.node != node {
            return Err(refuse(format!("the lease is for the node {:?}, and this is {node:?}", lease.node)));
        }
        if !is_signed {
            return Err(Refusal::new(
                Reason::Lease,
                "the lease was not given to this program by this pool's controller for this oriond: it was changed, \
                 made by somebody else, or is from before oriond was started again",
            ));
        }
        Ok((lease, token))
    }
}

impl SignedLease {
    /// What its client proves that it knows.
    pub fn token(&self) -> Token {
        Token::of_signature(self.signature)
    }
}

impl std::fmt::Debug for SignedLease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SignedLease(..)")
    }
}

/// What a client has shown with its request.
pub struct Shown<'a> {
    pub lease: &'a [u8],
    pub said: &'a Said,
    /// Of its request, what the proof covers; the lease is in it.
    pub request: &'a [u8],
    pub proof: Option<Proof>,
}

#[cfg(test)]
mod tests {
    use orion_wire::lease::{LeaseId, Vgpu, gpu_name};
    use proptest::prelude::*;

    use super::*;

    const NOW: u64 = 1_000_000;
    const INSTANCE: Instance = [5; 16];

    fn master() -> MasterKey {
        MasterKey::new([3; 32])
    }

    fn said() -> Said {
        Said { first: b"hello".to_vec(), nonce: [7; 32], certificate: None }
    }

    /// What a client sends that has this lease, and what oriond says to it.
    fn shown(key: &LeaseKey, node: &str, now: u64, lease: &[u8], token: &Token) -> Result<Lease, String> {
        let (said, request) = (said(), [b"request", lease].concat());
        let proof = Some(token.client_proof(&said, &request));
        key.check(&Shown { lease, said: &said, request: &request, proof }, node, now)
            .map(|(lease, _)| lease)
            .map_err(|no| no.text)
    }

    prop_compose! {
        fn leases()(
            id: [u8; 16], node in "[a-z0-9.-]{1,40}", tenant in r"[^\p{C}\p{Zl}\p{Zp}]{0,40}",
            life in 1..u64::MAX / 2,
            vgpus in prop::collection::vec((any::<[u8; 16]>(), 1..u64::MAX, 1..=100u32), 1..8),
        ) -> Lease {
            let vgpu = |(uuid, memory_bytes, ratio)| Vgpu { gpu: gpu_name(&uuid), memory_bytes, ratio };
            let vgpus = vgpus.into_iter().map(vgpu).collect();
            Lease { id: LeaseId(id), node, tenant, begins_before_unix_ms: NOW + life, vgpus }
        }
    }

    proptest! {
        #[test]
        fn a_lease_lets_its_client_in_and_comes_back_whole(lease in leases()) {
            let key = master().key_of(&lease.node, &INSTANCE);
            let signed = key.sign(&lease);
            prop_assert_eq!(shown(&key, &lease.node, NOW, &signed.body, &signed.token()), Ok(lease));
        }

        #[test]
        fn a_lease_with_one_other_bit_lets_nobody_in(lease in leases(), at: prop::sample::Index, bit in 0..8u32) {
            let key = master().key_of(&lease.node, &INSTANCE);
            let mut signed = key.sign(&lease);
            let at = at.index(signed.body.len());
            signed.body[at] ^= 1 << bit;
            prop_assert!(shown(&key, &lease.node, NOW, &signed.body, &signed.token()).is_err());
        }

        #[test]
        fn a_signature_of_ones_own_lets_nobody_in(lease in leases(), signature: [u8; 32]) {
            let key = master().key_of(&lease.node, &INSTANCE);
            let forged = SignedLease { body: lease.encode(), signature };
            let why = shown(&key, &lease.node, NOW, &forged.body, &forged.token()).expect_err("it is forged");
            prop_assert!(why.contains("made by somebody else"), "{}", why);
        }

        #[test]
        fn a_lease_is_for_one_oriond_of_one_node_until_it_runs_out(lease in leases(), other: [u8; 16]) {
            prop_assume!(other != INSTANCE);
            let key = master().key_of(&lease.node, &INSTANCE);
            let signed = key.sign(&lease);
            let (body, token) = (&signed.body[..], signed.token());
            let elsewhere = shown(&master().key_of("B", &INSTANCE), "B", NOW, body, &token).expect_err("another node");
            prop_assert!(elsewhere.contains("is for the node"), "{}", elsewhere);
            let later = shown(&master().key_of(&lease.node, &other), &lease.node, NOW, body, &token);
            prop_assert!(later.expect_err("another start").contains("started again"));
            let pool = MasterKey::new([4; 32]).key_of(&lease.node, &INSTANCE);
            prop_assert!(shown(&pool, &lease.node, NOW, body, &token).is_err());
            let end = lease.begins_before_unix_ms;
            prop_assert!(shown(&key, &lease.node, end - 1, body, &token).is_ok());
            prop_assert!(shown(&key, &lease.node, end, body, &token).expect_err("late").contains("ran out 0 ms ago"));
            let (said, request) = (said(), b"request");
            let shown = |token: &Token| {
                let proof = Some(token.client_proof(&said, request));
                let shown = Shown { lease: body, said: &said, request, proof };
                key.recognize(&shown, &lease.node).map(|(lease, _)| lease)
            };
            prop_assert_eq!(shown(&token), Ok(lease.clone()), "to look with it, it need not be young");
            prop_assert!(shown(&Token::of_signature([0; 32])).is_err());
        }
    }

    #[test]
    fn who_has_heard_a_lease_being_shown_cannot_show_it() {
        let vgpus = vec![Vgpu { gpu: gpu_name(&[1; 16]), memory_bytes: 1, ratio: 100 }];
        let id = LeaseId([9; 16]);
        let lease = Lease { id, node: "a".into(), tenant: String::new(), begins_before_unix_ms: NOW + 1, vgpus };
        let key = master().key_of("a", &INSTANCE);
        let signed = key.sign(&lease);
        let heard = signed.token().client_proof(&said(), &signed.body);
        let again = Said { nonce: [8; 32], ..said() };
        for (said, proof) in [(&again, Some(heard)), (&said(), None)] {
            let shown = Shown { lease: &signed.body, said, request: &signed.body, proof };
            assert!(key.check(&shown, "a", NOW).is_err());
        }
        let shown = Shown { lease: &signed.body, said: &said(), request: &signed.body, proof: Some(heard) };
        assert!(key.check(&shown, "a", NOW).is_ok());
    }
}
