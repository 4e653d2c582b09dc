# Hostile arguments, hostile clones, hostile remotes. Sourced by run after basics.bash.
# Every trap below would write a file under $AREA/caught; at the end that directory must be empty.
# shellcheck shell=bash

mkdir -p "$AREA/caught"
trap_script() { # <file>: a program that leaves a mark when anybody runs it
  printf '#!/bin/sh\nenv >"%s/%s.$$"\ncat\n' "$AREA/caught" "${1##*/}" >"$1"
  chmod +x "$1"
}

for url in 'ext::sh -c "touch x"' file:///etc "file://$UP" http://github.com/a/b git://github.com/a/b --upload-pack=x -x \
  https://user:pw@github.com/a/b https://tok@github.com/a/b 'https://github.com/a/b?x' 'https://-x/a' ssh://-oProxyCommand=x/a \
  'ssh://u:p@h/a' '-oProxyCommand=x@h:a' 'git@-h:a' 'git@h:-a' 'fd::7/a' 'host:path' relative/path 'https://github.com/../../x' \
  $'https://github.com/a\nb' 'https://github.com:x/a' 'HTTPS://github.com/a/b' ''; do
  expect "refused URL: ${url@Q}" 2 'next:' gr clone --name u -- "$url"
done
expect 'an option in place of the URL' 2 'unknown option .--upload-pack' gr clone --upload-pack=x "$UP"
expect 'a path outside the workspace' 1 'outside the workspace' gr clone / --name u
ln -s /etc "$WS/shared/etc.git"
expect 'a path through a link' 1 'outside the workspace' gr clone "$WS/shared/etc.git" --name u
expect 'a path that is no bare repository' 1 'refused' gr clone "$R/site" --name u
for name in -x .x ../x a/b . .. x.git x.GIT 'a b' $'a\nb' "$(printf 'a%.0s' {1..101})" '$(id)'; do
  expect "refused name: ${name@Q}" 2 'not a valid name' gr clone "$UP" "--name=$name"
  expect "refused name in remove: ${name@Q}" 2 'not a valid name' gr remove -- "$name"
  expect "refused name in pull: ${name@Q}" 2 'not a valid name' gr pull -- "$name"
done
for branch in -x --upload-pack=x 'a..b' 'a b' '@{-1}' HEAD a.lock 'x:y' '+x' 'refs/heads/*' '^x'; do
  if [[ $branch == +x ]]; then
    expect 'a plus is no force' 1 'no branch' gr push "--branch=$branch"
    continue
  fi
  expect "refused branch: ${branch@Q}" 2 'not a valid branch' gr push "--branch=$branch"
  expect "refused branch in create: ${branch@Q}" 2 'not a valid branch' gr branch "--create=$branch"
  expect "refused branch in clone: ${branch@Q}" 2 'not a valid branch' gr clone "$UP" --name u "--branch=$branch"
done

# A symbolic link in place of a clone, of .git, of a part of .git, of the lock, of the directory of clones.
raw clone -q "$UP" "$AREA/outside"
ln -s "$AREA/outside" "$R/link"
for sub in status pull push; do expect "$sub of a linked clone" 1 'symbolic link' gr "$sub" link; done
expect 'commit in a linked clone' 1 'symbolic link' gr commit link --message x
expect 'branch in a linked clone' 1 'symbolic link' gr branch link --create x
expect 'remove of a linked clone' 1 'refused' gr remove link
check 'the target of the link is whole' test -f "$AREA/outside/a.txt"
rm "$R/link"
fresh() { # a fresh clone `h`
  rm -rf "$R/h"
  gr clone "$UP" --name h
  G=$R/h/.git
}
fresh && rm -rf "$G" && ln -s "$AREA/outside/.git" "$G"
expect 'a linked .git' 1 'not a directory of its own' gr status h
rm "$G" && printf 'gitdir: %s\n' "$AREA/outside/.git" >"$G"
expect 'a .git file' 1 'not a directory of its own' gr commit h --message x
fresh && rm -rf "$G/objects" && ln -s "$AREA/outside/.git/objects" "$G/objects"
expect 'linked objects' 1 'symbolic link' gr commit h --message x
fresh && printf '%s\n' "$AREA/outside/.git" >"$G/commondir"
expect 'a commondir' 1 'commondir' gr status h
fresh && mkdir -p "$G/objects/info" && printf '%s\n' "$AREA/outside/.git/objects" >"$G/objects/info/alternates"
expect 'alternates' 1 'alternates' gr status h
fresh && rm -f "$R/.locks/h" && ln -s "$AREA/lock-target" "$R/.locks/h"
expect 'a linked lock' 1 'not a plain file' gr status h
check 'the target of the lock is not made' absent "$AREA/lock-target"
rm "$R/.locks/h"
mv "$R" "$R.away" && ln -s "$AREA/outside" "$R"
expect 'a linked directory of clones' 1 'symbolic link' gr clone "$UP" --name z
rm "$R" && mv "$R.away" "$R"
fresh && rm -rf "$G"
raw init -q "$(home alice)"
expect 'a clone without .git does not become the repository above' 1 'has no .git' gr commit h --message x
rm -rf "$(home alice)/.git"

# Links in the work tree are content: they are committed as links, and remove does not follow them.
fresh && ln -s "$AREA/outside" "$R/h/way-out" && ln -s /etc/passwd "$R/h/file-out"
expect 'links in the tree are committed as links' 0 '2 file' gr commit h --message links
expect 'remove does not follow links' 0 'removed' gr remove h
check 'the target of the tree link is whole' test -f "$AREA/outside/a.txt"

# Keys of the clone's own config that run programs or send data elsewhere.
trap_script "$AREA/evil"
E=$AREA/evil
for setting in "core.sshCommand=$E" "core.askPass=$E" "credential.helper=$E" "credential.https://github.com.helper=!$E" "core.fsmonitor=$E" \
  "core.hooksPath=$AREA" "url.https://evil.example/.insteadOf=https://github.com/" "url.$UP.pushInsteadOf=https://x/" "gpg.program=$E" \
  "filter.x.clean=$E" "filter.x.smudge=$E" "filter.x.process=$E" "diff.x.textconv=$E" "diff.external=$E" "diff.x.command=$E" "merge.x.driver=$E" \
  "remote.origin.uploadpack=$E" "remote.origin.receivepack=$E" "remote.origin.vcs=ext" "remote.origin.proxy=http://evil.example" \
  "remote.origin.pushurl=$UP" "remote.https://github.com/a/b.url=$UP" "include.path=$E" "includeIf.gitdir:/.path=$E" "core.worktree=$AREA/outside" \
  "core.editor=$E" "core.pager=$E" "pager.status=$E" "http.proxy=http://evil.example" "http.sslVerify=false" "http.extraHeader=x: y" \
  "core.gitProxy=$E" "alias.status=!$E" "extensions.worktreeConfig=true" "extensions.partialClone=origin" "core.alternateRefsCommand=$E" \
  "submodule.x.update=!$E" "trailer.x.command=$E" "uploadpack.packObjectsHook=$E" "gc.recentObjectsHook=$E" "core.attributesFile=$E"; do
  fresh
  git config --file "$G/config" "${setting%%=*}" "${setting#*=}"
  expect "refused key: ${setting%%=*}" 1 'which is not allowed here' gr pull h
done
fresh && printf '[core\nbroken' >>"$G/config"
expect 'a broken config' 1 'not allowed here' gr status h
expect 'list names a refused clone' 0 $'h\trefused: its config.*site\tmain' gr list
expect 'a refused clone can be removed' 0 'removed h' gr remove h

# Hooks, attributes, and a submodule with a config of its own: all allowed to be there, none may run.
fresh
mkdir -p "$G/hooks" "$G/info"
for hook in pre-commit prepare-commit-msg commit-msg post-commit post-checkout post-merge pre-push pre-merge-commit reference-transaction \
  post-index-change fsmonitor-watchman pre-auto-gc post-rewrite; do trap_script "$G/hooks/$hook"; done
printf '* filter=x diff=x merge=x ident\n' | tee "$R/h/.gitattributes" >"$G/info/attributes"
mkdir -p "$(home alice)/.config/git"
printf '[filter "x"]\nclean = %s\n[core]\nfsmonitor = %s\n' "$E" "$E" | tee "$(home alice)/.gitconfig" >"$(home alice)/.config/git/config"
expect 'commit with hooks and filters around' 0 'committed' gr commit h --message x
expect 'branch with hooks around' 0 'created' gr branch h --create hooked
expect 'push with hooks around' 0 'pushed' gr push h
expect 'pull with hooks around' 0 'up to date' gr pull h
expect 'status with filters around' 0 '## hooked' gr status h
raw clone -q "$UP" "$R/h/inner"
git config --file "$R/h/inner/.git/config" core.fsmonitor "$E"
expect 'a repository inside the clone' 1 'nothing was committed: inner/? is a repository' gr commit h --message x
check 'it is not staged' test -z "$(raw -C "$R/h" ls-files inner)"
raw -c core.fsmonitor=false -C "$R/h" add inner 2>/dev/null
for sub in status pull push; do expect "$sub with a populated submodule" 1 'inner is a repository' gr "$sub" h; done
gr remove h
rm -rf "$(home alice)/.gitconfig" "$(home alice)/.config"

# A bare repository of another agent: its hooks would run with the rights of the one who pushes.
raw clone -q --bare "$UP" "$WS/shared/trap.git"
T=$WS/shared/trap.git
git config --file "$T/config" --unset-all remote.origin.url || true
mkdir -p "$T/hooks"
for hook in pre-receive update post-receive post-update reference-transaction proc-receive push-to-checkout pre-auto-gc; do trap_script "$T/hooks/$hook"; done
expect 'clone of a bare repository with hooks' 0 'cloned' gr clone "$T" --name t
printf 'y\n' >"$R/t/y" && gr commit t --message y
expect 'push to a bare repository with hooks' 0 'pushed' gr push t
git config --file "$T/config" core.alternateRefsCommand "$E"
expect 'a bare repository with a hostile config' 1 'refused: its config sets .core.alternaterefscommand' gr pull t
git config --file "$R/t/.git/config" remote.origin.url "ext::$E"
expect 'a hostile URL in the clone' 2 'is refused' gr pull t
expect 'a hostile URL in the clone, push' 2 'is refused' gr push t
gr remove t

check 'no trap was sprung' test -z "$(ls -A "$AREA/caught")"
check 'nothing was made outside' test -z "$(raw -C "$AREA/outside" status --porcelain)"
