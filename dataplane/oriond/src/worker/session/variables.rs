//! Variables of modules and libraries, and `__managed__` ones among them.

use super::Session;
use super::reach::is_managed;
use crate::worker::state::addresses::{DeviceAddress, Of};

impl Session {
    /// The driver has told where a variable is. Whether it is managed.
    pub fn found_global(&mut self, address: u64, bytes: u64, owner: u64) -> bool {
        self.addresses.given(address, bytes, Of::Globals(owner));
        let is_managed = is_managed(self.driver, address);
        if is_managed {
            self.known_managed.found(address, bytes, owner);
        }
        is_managed
    }

    /// Of a module's or library's, with which it goes, and not before: its bytes are carried over until then.
    pub fn is_managed_variable(&self, address: DeviceAddress) -> bool {
        self.known_managed.owner(address.raw(), 1).is_some()
    }

    /// A module or library is about to be unloaded.
    pub fn globals_unloaded(&mut self, owner: u64) {
        self.addresses.unloaded(owner);
        self.known_managed.retain(|_, of| of != owner);
        self.variables.retain(|_, of| of != owner);
    }

    /// A context is gone, and variables with it, or with what was loaded there.
    pub(super) fn forget_lost_variables(&mut self) {
        let driver = self.driver;
        self.known_managed.retain(|address, _| is_managed(driver, address));
        self.variables.retain(|address, _| is_managed(driver, address));
    }
}
