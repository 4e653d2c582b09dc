//! The members of a channel as text.

use ghost_proto::v1::Channel;

/// The members on one line; if the daemon listed only some, with the number of the others.
pub fn members(channel: &Channel) -> String {
    let shown = channel.members.join(", ");
    match usize::try_from(channel.member_count).unwrap_or_default().saturating_sub(channel.members.len()) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
