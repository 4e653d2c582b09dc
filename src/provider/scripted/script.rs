//! One rule file of a provider: its rules, or its text until they are first asked for.
//!
//! Must never: go back to the file. What it said when the world was started or reloaded is what it says.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;

use super::read::{ReadFile, read};
use super::rules::RuleSet;
use super::vetted::ScriptDigest;
use crate::error::{Charge, ErrorKind, ProviderError};

/// The rule file of a model.
pub(super) struct Script {
    pub(super) model: String,
    pub(super) file: PathBuf,
    pub(super) digest: ScriptDigest,
    /// Its text, if that is still to be read.
    unread: Option<Arc<str>>,
    rules: OnceCell<Arc<RuleSet>>,
}

impl Script {
    /// One in which nothing was found wrong, and which is read when its rules are first asked for.
    pub(super) fn unread(model: String, file: PathBuf, digest: ScriptDigest, text: String) -> Self {
        Self { model, file, digest, unread: Some(text.into()), rules: OnceCell::new() }
    }

    /// One that has been read.
    pub(super) fn read(model: String, file: PathBuf, digest: ScriptDigest, rules: RuleSet) -> Self {
        Self { model, file, digest, unread: None, rules: OnceCell::new_with(Some(Arc::new(rules))) }
    }

    /// Its rules; the first who asks for those of an unread file waits until they are compiled.
    pub(super) async fn rules(&self) -> Result<&Arc<RuleSet>, ProviderError> {
        self.rules.get_or_try_init(|| self.compile()).await
    }

    async fn compile(&self) -> Result<Arc<RuleSet>, ProviderError> {
        let (text, file, model) = (self.unread.clone().unwrap_or_default(), self.file.clone(), self.model.clone());
        let found = spawn_blocking(move || read(&text, &file, &model, false)).await;
        let words = match found {
            Ok(ReadFile { rules: Some(rules), .. }) => return Ok(Arc::new(rules)),
            Ok(ReadFile { problems, .. }) => problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            Err(error) => format!("reading it panicked: {error}"),
        };
        // Asking again gives the same, so it is no passing failure, and it costs nothing.
        let message = format!("the rule file {} cannot be used: {words}", self.file.display());
        Err(ProviderError::new(ErrorKind::BadRequest, message).charge(Charge::Nothing))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ghost_domain::Code;

    use super::super::vetted::{Vetted, digest_of};
    use super::super::{Scripted, tests::said};
    use super::*;
    use crate::model::{NoDeltas, Provider};
    use crate::testing::{ManualClock, request};

    #[tokio::test]
    async fn a_vouched_for_file_is_read_when_its_model_is_asked_and_every_other_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let good = "otherwise: [{ say: Here. }]\n";
        let bad = "otherwise: [{ say: \"{{ \" }]\n";
        fs::write(dir.path().join("good.yaml"), good).unwrap();
        fs::write(dir.path().join("bad.yaml"), bad).unwrap();
        let load = |vetted: &Vetted| Scripted::load(dir.path(), ManualClock::at(0), vetted);
        let vetted = Vetted::of([digest_of(good)]);
        assert_eq!(load(&vetted).err().unwrap().code, Code::InvalidArguments);

        // As after a change of the rules that this program keeps to: said when it comes to it, at no cost.
        let scripted = load(&Vetted::of([digest_of(good), digest_of(bad)])).unwrap();
        let answers = |model: &str| {
            let asked = request(model, "hello");
            let scripted = &scripted;
            async move { scripted.complete(&asked, &mut NoDeltas).await }
        };
        for _ in 0..2 {
            assert_eq!(said(&answers("good").await.unwrap()), "Here.");
            let error = answers("bad").await.unwrap_err();
            assert_eq!((error.kind, error.charge), (ErrorKind::BadRequest, Charge::Nothing));
            assert!(error.message.contains("bad.yaml:1"), "{}", error.message);
        }
        // What a file says is what it said.
        fs::write(dir.path().join("good.yaml"), bad).unwrap();
        assert_eq!(said(&answers("good").await.unwrap()), "Here.");
        assert!(load(&vetted).is_err());
    }
}
