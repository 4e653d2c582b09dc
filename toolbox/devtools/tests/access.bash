# The token, the SSH key, public access, and gh. Sourced by run after hostile.bash.
# shellcheck shell=bash

# What the askpass helper answers, asked directly and as git itself asks.
ask() {
  CODE=0 STDERR=''
  STDOUT=$(env -i PATH="$PATH" GITHUB_TOKEN="$SECRET" "${EXTRA[@]}" "$ROOT/bin/github-askpass" "$@" 2>&1) || CODE=$?
}
expect 'askpass: user' 0 '^x-access-token$' ask "Username for 'https://github.com': "
expect 'askpass: password' 0 "^$SECRET\$" ask "Password for 'https://x-access-token@github.com': "
for question in '' 'Password: ' "Password for 'https://evil.example': " "Password for 'http://x-access-token@github.com': " \
  "Password for 'https://x-access-token@github.com.evil.example': " "Password for 'https://x-access-token@evil.example/@github.com': " \
  "Password for 'https://github.com@evil.example': " "Password for 'https://x-access-token@github.com:444': " "Password for 'https://me@github.com': " \
  "Password for 'https://x-access-token@github.com': x" $'x\nPassword for \'https://x-access-token@github.com\': ' \
  "Username for 'https://evil.example': " 'Enter passphrase for key: '; do
  expect "askpass is silent: ${question@Q}" 1 '^$' ask "$question"
done
EXTRA=(GITHUB_HOST=git.example)
expect 'askpass: the host of the operator' 0 "^$SECRET\$" ask "Password for 'https://x-access-token@git.example': "
expect 'askpass: only the host of the operator' 1 '^$' ask "Password for 'https://x-access-token@github.com': "
EXTRA=()
git_asks() { # <host>: git makes the question
  CODE=0 STDERR=''
  STDOUT=$(printf 'protocol=https\nhost=%s\n\n' "$1" | env -i PATH="$PATH" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 \
    GITHUB_TOKEN="$SECRET" GIT_ASKPASS="$ROOT/bin/github-askpass" git credential fill 2>&1) || CODE=$?
}
expect 'git asks for github.com' 0 "password=$SECRET" git_asks github.com
for host in evil.example github.com.evil.example github.com:8443 xgithub.com; do
  git_asks "$host"
  check "git asks for $host and gets nothing" test "$CODE" != 0 -a "${STDOUT/"$SECRET"/}" = "$STDOUT"
done

# Public access only.
set_url() { git config --file "$R/site/.git/config" remote.origin.url "$1"; }
set_url https://github.com/acme/site.git
expect 'push with public access' 1 'cannot push to github.com: access is public only.*next: your commits are kept' gr push site
set_url git@github.com:acme/site.git
expect 'push to an SSH URL without a key' 1 'cannot push to github.com: access is public only' gr push site
set_url git@git.example:acme/site.git
expect 'an SSH URL of another host without a key' 1 'no SSH key for git.example' gr push site
EXTRA=(GITHUB_TOKEN="$SECRET")
set_url https://git.example/acme/site.git
expect 'a token is no access to another host' 1 'cannot push to git.example: access is public only' gr push site

# The SSH key, with a stand-in for ssh that notes its arguments.
mkdir -p "$AREA/fake" && printf 'key\n' >"$AREA/key"
printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"%s/ssh-args"\nexit 1\n' "$AREA" >"$AREA/fake/ssh"
chmod +x "$AREA/fake/ssh"
TEST_PATH=$AREA/fake:$PATH
EXTRA=(GITHUB_SSH_KEY="$AREA/key")
for url in git@github.com:acme/site.git https://github.com/acme/site.git ssh://git@git.example:2222/acme/site; do
  set_url "$url" && rm -f "$AREA/ssh-args"
  expect "push to $url with a key" 1 'pushing main of site failed' gr push site
  check 'ssh gets the key and is strict' grep -qx "$AREA/key" "$AREA/ssh-args"
  check 'ssh asks nobody' grep -qx 'BatchMode=yes' "$AREA/ssh-args"
done

# gh, with a stand-in that shows what it gets and tries to print the token.
printf '#!/bin/sh\necho "args: $*"\necho "dir: $PWD"\necho "token $GH_TOKEN $GITHUB_TOKEN"\necho "host $GH_HOST $GH_PROMPT_DISABLED"\nexit ${FAKE_GH:-0}\n' >"$AREA/fake/gh"
chmod +x "$AREA/fake/gh"
set_url git@github.com:acme/site.git
expect 'gh without a token' 1 'no token' gr gh site -- pr list
EXTRA=(GH_TOKEN="$SECRET")
expect 'gh runs in the clone' 0 'args: pr view 3 --json title.*dir: .*/repos/site.*token \[token\] \[token\].host github.com 1' gr gh site -- pr view 3 --json title
raw -C "$R/site" update-ref refs/remotes/origin/main HEAD
expect 'pr create through gh' 0 'args: pr create --title=-t --body= --head=main' gr pr create site --title -t
EXTRA+=(FAKE_GH=4)
expect 'gh fails' 1 'gh ended with exit code 4' gr gh site -- pr view 3
expect 'pr create when gh fails' 1 'https://github.com/acme/site/pull/new/main.*not opened: gh failed' gr pr create site --title t
EXTRA=(GH_TOKEN="$SECRET")
for words in 'auth token' 'auth login' 'config list' 'secret list' 'ssh-key list' 'gpg-key list' 'alias set x y' 'extension install x/y' 'codespace list' \
  'gist create x' 'repo clone a/b' 'repo create x' 'release create v1 x' 'release upload v1 x' 'run download 1' 'pr checkout 1' 'pr create' 'browse' \
  'copilot x' '--version' '-R a/b pr list' 'pr' 'api x --hostname evil.ghe.com' 'api x --hostname=evil.ghe.com' 'api https://evil.ghe.com/x' \
  'api HTTP://github.localhost/' 'api https://github.com@evil.ghe.com/' 'pr view -R evil.ghe.com/a/b' 'pr view --repo=evil.ghe.com/a/b' \
  'pr view -Revil.ghe.com/a/b' 'pr view https://evil.ghe.com/a/b/pull/1' 'api x --jq env.GH_TOKEN' 'api x --jq=env' 'api x -q $ENV' 'api x -q (env)' \
  'api x -qenv' 'api x -iq env' 'api x --input /proc/self/environ' 'api x -F a=@/proc/self/environ' 'api x --field=a=@f' 'api x -Fa=@f' 'api x -F @f' \
  'issue create --body-file f' 'issue create -F f' 'issue comment 1 -F a=b' 'pr edit 1 --body-file=f' 'issue create --template f' 'issue create -T f' \
  'api -X POST user/keys -f key=x' 'api user/%6beys' 'api /repos/a/b/actions/secrets/x' 'api https://api.github.com/user/GPG_keys' 'issue create --recover f' 'api x --verbose' 'workflow run w -F a=@f'; do
  read -ra list <<<"$words"
  expect "gh refuses: $words" 2 'next:' gr gh site -- "${list[@]}"
done
for words in 'api repos/a/b/issues -f title=x -F n=3 --jq .[0].title' 'issue create --title x --body https://evil.example' 'pr list -R a/b -L 3' \
  'api https://api.github.com/repos/a/b' 'search issues bug --repo a/b' 'pr comment 3 --body environment'; do
  read -ra list <<<"$words"
  expect "gh allows: $words" 0 'args:' gr gh site -- "${list[@]}"
done
set_url https://git.example/a/b
expect 'gh for another host' 1 'github.com only' gr gh site -- pr list
unset TEST_PATH
EXTRA=()
set_url "$UP"

if command -v python3 >/dev/null && command -v openssl >/dev/null; then
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout "$AREA/tls.key" -out "$AREA/tls.crt" 2>/dev/null
  mkdir -p "$AREA/served/real/acme"
  raw clone -q --bare "$UP" "$AREA/served/real/acme/site.git"
  git config --file "$AREA/served/real/acme/site.git/config" http.receivepack true
  # The password comes from a file name here and below, so that the argument lists can be searched for the token.
  printf '%s' "$SECRET" >"$AREA/password"
  python3 -c 'import sys; sys.argv[2] = open(sys.argv[2]).read(); exec(open(sys.argv[0 + 6]).read())' \
    "$AREA/served" "$AREA/password" "$AREA/tls.crt" "$AREA/tls.key" "$AREA/requests" "$ROOT/tests/server.py" >"$AREA/ports" &
  SERVERS+=("$!")
  for _ in {1..100}; do [[ -s $AREA/ports ]] || sleep 0.1; done
  read -r PORT PORT2 <"$AREA/ports"
  # Looks at every argument list while the calls below run.
  (
    exec 2>/dev/null
    while [[ ! -e $AREA/watch-ends ]]; do
      for file in /proc/[0-9]*/cmdline; do
        [[ $(tr '\0' ' ' <"$file") != *"$(<"$AREA/password")"* ]] || printf '%s\n' "$file" >>"$AREA/on-argv"
      done
    done
  ) &
  WATCH=$!
  SERVERS+=("$WATCH")
  EXTRA=(GITHUB_TOKEN="$SECRET" GIT_SSL_CAINFO="$AREA/tls.crt")
  expect 'a host that is not the operator'\''s asks for credentials' 1 'access \(public\) does not reach' gr clone "https://localhost:$PORT/real/acme/site" --name s
  check 'it got nothing' test "$(grep -c -- "$SECRET" "$AREA/requests")" = 0
  check 'it was asked' grep -q "$PORT GET /real/acme/site" "$AREA/requests"
  EXTRA+=(GITHUB_HOST="localhost:$PORT")
  expect 'clone with the token' 0 'cloned.*branch main' gr clone "https://LOCALHOST:$PORT/real/acme/site" --name s
  check 'the host of the operator got the token' grep -q "$PORT .*x-access-token:$SECRET" "$AREA/requests"
  printf 'z\n' >"$R/s/z" && gr commit s --message z
  expect 'push with the token' 0 'pushed main' gr push s
  expect 'pull with the token' 0 'up to date' gr pull s
  check 'the push arrived' test "$(raw --git-dir="$AREA/served/real/acme/site.git" rev-parse main)" = "$(raw -C "$R/s" rev-parse main)"
  expect 'an SSH URL is rewritten to HTTPS' 0 'cloned' gr clone git@localhost:real/acme/site --name s2
  check 'its config keeps the URL as given' test "$(raw -C "$R/s2" config remote.origin.url)" = git@localhost:real/acme/site
  expect 'push to the rewritten URL' 0 'pushed' gr push s2
  expect 'a redirect is not followed' 1 'has moved' gr clone "https://localhost:$PORT/moved/acme/site" --name s3
  check 'the other host was not asked' test "$(grep -c "^$PORT2 " "$AREA/requests")" = 0
  expect 'the other port gets no token' 1 'does not reach' gr clone "https://localhost:$PORT2/real/acme/site" --name s4
  check 'the other port got nothing' test "$(grep "^$PORT2 " "$AREA/requests" | grep -c -- "$SECRET")" = 0
  # A clone that is killed in the middle.
  set -m
  gr clone "https://localhost:$PORT/stall/acme/site" --name killed &
  killed=$!
  set +m
  for _ in {1..50}; do [[ -e $R/.tmp-killed ]] || sleep 0.1; done
  check 'a clone at work is out of sight' absent "$R/killed"
  kill -KILL -- "-$killed" && wait "$killed" 2>/dev/null || true
  EXTRA=()
  expect 'the killed clone is free again' 0 'cloned' gr clone "$UP" --name killed
  check 'nothing of it is left' absent "$R/.tmp-killed"
  : >"$AREA/watch-ends"
  wait "$WATCH" || true
  check 'the token is on no argument list' absent "$AREA/on-argv"
else
  printf 'skip  calls to a server (python3 or openssl is missing)\n'
fi
