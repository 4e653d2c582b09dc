//! What every command in a container may write besides its agent's places.

use crate::frame::right;

/// Devices that commands may write to.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// File systems in memory that commands may write to.
const IN_MEMORY: [&str; 2] = ["/tmp", "/dev/shm"];

/// Devices, and files in memory.
pub(super) fn of_container() -> impl Iterator<Item = (u8, String)> {
    let devices = DEVICES.map(|path| (right::READ | right::WRITE | right::IF_THERE, path.to_owned()));
    let all = right::READ | right::WRITE | right::EXECUTE;
    devices.into_iter().chain(IN_MEMORY.map(|path| (all, path.to_owned())))
}
