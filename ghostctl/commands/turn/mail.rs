//! The messages that a turn was opened with, from the text that its model read.

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its sender.
    pub from: String,
    /// Its kind, such as `ask`.
    pub kind: String,
    /// Its subject, if it has one.
    pub subject: Option<String>,
    /// Its text.
    pub body: String,
}

/// The messages of a mail text. Empty if it has none in the form that the daemon writes; then the text stands for
/// itself.
pub fn messages(mail: &str) -> Vec<Message> {
    let mut found = Vec::new();
    let mut rest = mail;
    // A message cannot contain these tags: the daemon escapes `<` in its text.
    while let Some((_, after)) = rest.split_once("<message ") {
        let Some((head, after)) = after.split_once(">\n") else { break };
        let Some((body, after)) = after.split_once("\n</message>") else { break };
        rest = after;
        found.push(Message {
            from: attribute(head, "from").unwrap_or_default(),
            kind: attribute(head, "kind").unwrap_or_default(),
            subject: attribute(head, "subject"),
            body: unescape(body),
        });
    }
    found
}

fn attribute(head: &str, name: &str) -> Option<String> {
    let (_, after) = head.split_once(&format!("{name}=\""))?;
    after.split_once('"').map(|(value, _)| unescape(value))
}

fn unescape(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_back_as_they_were_sent() {
        let mail = "<inbox>\n<message message_id=\"1\" kind=\"ask\" from=\"operator:local\" at=\"x\" subject=\"a &amp; b\">\n\
                    1 &lt; 2 &amp;amp;\nand on\n</message>\n<message message_id=\"2\" kind=\"cron\" from=\"cron\" at=\"x\">\n\n</message>\n</inbox>";
        let found = messages(mail);
        assert_eq!((found.len(), found[0].kind.as_str(), found[0].from.as_str()), (2, "ask", "operator:local"));
        assert_eq!((found[0].subject.as_deref(), found[0].body.as_str()), (Some("a & b"), "1 < 2 &amp;\nand on"));
        assert_eq!((found[1].subject.as_deref(), found[1].body.as_str()), (None, ""));
        assert_eq!(messages("the texts of a job"), []);
        assert_eq!(messages("<message from=\"x\">\ncut"), []);
    }
}
