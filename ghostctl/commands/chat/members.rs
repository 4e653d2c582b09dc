//! The members of a channel, for people.

use ghost_proto::v1::Channel;

/// Members as one line, and how many more there are.
pub fn members(channel: &Channel) -> String {
    let shown = channel.members.join(", ");
    match usize::try_from(channel.member_count).unwrap_or_default().saturating_sub(channel.members.len()) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
