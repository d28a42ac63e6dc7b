//! How two sides show each other that they know a secret, without saying it.
//!
//! The secret is the token that a server was given and its users have. Each side sends a fresh nonce and then an
//! HMAC-SHA256 over both nonces, everything else that was said, and a label that says who proves what. So a recording
//! is of no use in another handshake, one side's proof cannot be sent back as the other's, and nobody can change what
//! a session is asked for with. The server proves itself first: a client tells a stranger nothing but a version.
//!
//! Where the connection is encrypted, which certificate the server has shown is proved too: somebody in between shows
//! another one, and no proof that he passes on fits.
//!
//! What this does not do: where the connection is not encrypted the bytes behind the handshake are neither secret nor
//! protected, and whoever can change them on their way takes over a session. And whoever connects can try out guesses
//! of the token at home, so it has to be random and not a word.

// UNSAFETY: getrandom and geteuid.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use orion_tls::Fingerprint;
use orion_wire::Writer;
use orion_wire::hello::Nonce;
pub use orion_wire::hello::Proof;
use sha2::{Digest, Sha256};

/// Bytes of the block that SHA-256 works on.
const BLOCK_BYTES: usize = 64;
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 4096;

/// What a server and its users know and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Vec<u8>);

/// What the connections of one session know of each other.
#[derive(Clone, PartialEq, Eq)]
pub struct LaneKey([u8; 32]);

/// What has been said in a handshake when it comes to proving: the client's first message as it was sent, the server's
/// nonce, and its certificate where the connection is encrypted.
#[derive(Clone)]
pub struct Said {
    pub first: Vec<u8>,
    pub nonce: Nonce,
    pub certificate: Option<Fingerprint>,
}

impl Said {
    /// What is proved with this label. Lists of different lengths are different messages.
    fn parts<'a>(&'a self, label: &'a [u8]) -> Vec<&'a [u8]> {
        let certificate = self.certificate.as_ref().map(|fingerprint| &fingerprint.0[..]);
        [label, &self.first, &self.nonce].into_iter().chain(certificate).collect()
    }
}

impl Token {
    /// `origin` names where it comes from, for the error.
    pub fn new(text: &str, origin: &str) -> Result<Token, String> {
        let token = text.trim_end_matches(['\r', '\n']);
        match token.len() {
            0 => Err(format!("the token in {origin} is empty; make one with `openssl rand -hex 16`")),
            bytes if bytes < TOKEN_BYTES_MIN => Err(format!(
                "the token in {origin} has {bytes} characters; use at least {TOKEN_BYTES_MIN}, such as those of \
                 `openssl rand -hex 16`"
            )),
            bytes if bytes > TOKEN_BYTES_MAX => {
                Err(format!("the token in {origin} has more than {TOKEN_BYTES_MAX} characters"))
            }
            _ => Ok(Token(token.as_bytes().to_vec())),
        }
    }

    /// Of somebody who was given a lease, and its signature with it.
    pub(crate) fn of_signature(signature: [u8; 32]) -> Token {
        Token(signature.to_vec())
    }

    /// From a file that nobody else can read. Its last newline does not count.
    pub fn read(path: &Path) -> Result<Token, String> {
        let name = path.display();
        let failed = |e: io::Error| format!("reading the token file {name} failed: {e}");
        // A fifo must not hold us up before it is seen to be one.
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        // Of what is open, so that it cannot be another file by now.
        let found = file.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(format!("the token file {name} is not a regular file"));
        }
        // SAFETY: geteuid cannot fail.
        let ours = unsafe { libc::geteuid() };
        if found.uid() != ours && found.uid() != 0 {
            let owner = found.uid();
            return Err(format!(
                "the token file {name} belongs to user {owner}, who knows the token then; it has to belong to user \
                 {ours} or to root"
            ));
        }
        if found.mode() & 0o077 != 0 {
            let mode = found.mode() & 0o7777;
            return Err(format!(
                "the token file {name} has mode {mode:04o}: others than its owner can read or change it; \
                 `chmod 600 {name}`, and make a new token if somebody may have read this one"
            ));
        }
        let mut text = String::new();
        file.take(TOKEN_BYTES_MAX as u64 + 2).read_to_string(&mut text).map_err(failed)?;
        Token::new(&text, &name.to_string())
    }

    /// What `ORION_TOKEN` or `ORION_TOKEN_FILE` say.
    pub fn from_environment() -> Result<Option<Token>, String> {
        let set = |name: &str| crate::environment::var_os(name).filter(|value| !value.is_empty());
        match (set("ORION_TOKEN"), set("ORION_TOKEN_FILE")) {
            (Some(_), Some(_)) => Err("ORION_TOKEN and ORION_TOKEN_FILE are both set; unset one of them".into()),
            (Some(text), None) => {
                let text = text.into_string().map_err(|_| "ORION_TOKEN is not valid UTF-8".to_owned())?;
                Token::new(&text, "ORION_TOKEN").map(Some)
            }
            (None, Some(path)) => Token::read(Path::new(&path)).map(Some).map_err(|e| format!("ORION_TOKEN_FILE: {e}")),
            (None, None) => Ok(None),
        }
    }

    /// The server's, for its challenge.
    pub fn server_proof(&self, said: &Said) -> Proof {
        hmac(&self.0, &said.parts(b"orion server"))
    }

    /// The client's, for `request`.
    pub fn client_proof(&self, said: &Said, request: &[u8]) -> Proof {
        hmac(&self.0, &[&said.parts(b"orion client")[..], &[request]].concat())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

impl LaneKey {
    /// Of the session that this handshake begins. Without a token whoever has heard the handshake knows it too.
    pub fn new(token: Option<&Token>, said: &Said) -> LaneKey {
        let token = token.map_or(&[][..], |t| &t.0);
        LaneKey(hmac(token, &said.parts(b"orion lanes")))
    }

    pub fn server_proof(&self, said: &Said) -> Proof {
        hmac(&self.0, &said.parts(b"orion server's lane"))
    }

    pub fn client_proof(&self, said: &Said) -> Proof {
        hmac(&self.0, &said.parts(b"orion client's lane"))
    }
}

/// Takes the same time wherever the first difference is.
pub fn is_same(a: &Proof, b: &Proof) -> bool {
    std::hint::black_box(a.iter().zip(b).fold(0, |different, (x, y)| different | (x ^ y))) == 0
}

pub fn fresh_nonce() -> io::Result<Nonce> {
    let mut nonce = [0u8; 32];
    // SAFETY: 32 bytes into a local; requests of up to 256 bytes are never cut short.
    let n = unsafe { libc::syscall(libc::SYS_getrandom, nonce.as_mut_ptr(), nonce.len(), 0) };
    if n == nonce.len() as libc::c_long { Ok(nonce) } else { Err(io::Error::last_os_error()) }
}

/// Over the parts with their lengths, so that no two lists of parts are the same message.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut message = Vec::new();
    parts.iter().for_each(|part| message.bytes(part));
    hmac_sha256(key, &message)
}

/// RFC 2104 over the SHA-256 that the shim has anyway.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0u8; BLOCK_BYTES];
    if key.len() > BLOCK_BYTES {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(block.map(|b| b ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|b| b ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// RFC 4231, cases 1, 2 and 6.
    #[test]
    fn it_is_hmac_sha256() {
        assert_eq!(
            hex(&hmac_sha256(&[0x0b; 20], b"Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(&hmac_sha256(b"Jefe", b"what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(&hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }

    #[test]
    fn a_proof_is_of_one_handshake_and_one_side() {
        let token = Token::new("a token of some length", "the test").unwrap();
        let said = Said { first: b"hello".to_vec(), nonce: [1; 32], certificate: None };
        let shown = |byte| Said { certificate: Some(Fingerprint([byte; 32])), ..said.clone() };
        let proofs = [
            token.server_proof(&said),
            token.client_proof(&said, b""),
            token.client_proof(&said, b"request"),
            token.server_proof(&Said { nonce: [2; 32], ..said.clone() }),
            token.server_proof(&Said { first: b"hellO".to_vec(), ..said.clone() }),
            LaneKey::new(Some(&token), &said).server_proof(&said),
            LaneKey::new(Some(&token), &said).client_proof(&said),
            LaneKey::new(None, &said).client_proof(&said),
            token.server_proof(&shown(1)),
            token.server_proof(&shown(2)),
            token.client_proof(&shown(1), b"request"),
            token.client_proof(&shown(2), b"request"),
            LaneKey::new(Some(&token), &shown(1)).client_proof(&said),
            LaneKey::new(Some(&token), &said).client_proof(&shown(1)),
        ];
        for (i, a) in proofs.iter().enumerate() {
            assert!(proofs.iter().enumerate().all(|(j, b)| is_same(a, b) == (i == j)));
        }
    }

    #[test]
    fn a_token_that_others_may_know_is_refused() {
        let path = std::env::temp_dir().join(format!("orion-proof-token-{}", std::process::id()));
        std::fs::write(&path, "a token of some length\n").unwrap();
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o777] {
            set(mode);
            let refused = Token::read(&path).unwrap_err();
            assert!(refused.contains(&format!("{mode:04o}")) && refused.contains("chmod 600"), "{refused}");
        }
        set(0o600);
        assert!(Token::read(&path).unwrap() == Token::new("a token of some length", "the test").unwrap());
        for (text, words) in
            [("", "is empty"), ("\n", "is empty"), ("short\n", "has 5 characters"), (&*"x".repeat(5000), "more than")]
        {
            std::fs::write(&path, text).unwrap();
            let refused = Token::read(&path).unwrap_err();
            assert!(refused.contains(words), "{refused}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Token::read(Path::new("/dev/null")).unwrap_err().contains("not a regular file"));
    }
}
