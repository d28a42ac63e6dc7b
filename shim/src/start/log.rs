//! The log of this program: `orion_transport::client::log`, begun as client.conf says and ended with the process.

// UNSAFETY: has a function called when the process ends.

use std::sync::Once;

use orion_transport::client::log;
use orion_transport::environment;
use orion_wire::client_conf::ClientConf;

use crate::session::carrier;

/// Before anything else is said. A client.conf that makes no sense is no reason not to log; whoever needs it for more
/// refuses it.
pub fn begin() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let (conf, why) = match ClientConf::below(environment::home()) {
            Ok(conf) => (conf, None),
            Err(why) => (ClientConf::default(), Some(why)),
        };
        let begun = log::begin(&conf.log, environment::home().as_deref(), &carrier::program());
        for why in why.into_iter().chain(begun.err()) {
            crate::say!("{why}");
        }
        log::tell(false, format_args!("Orion Resource. Build-cuda-{}", env!("CARGO_PKG_VERSION")));
        extern "C" fn at_exit() {
            log::end();
        }
        // SAFETY: the function writes a line, from statics that are never dropped.
        unsafe { libc::atexit(at_exit) };
    });
}
