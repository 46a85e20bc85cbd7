#!/usr/bin/env bash
# Records traces of ten days of work with git, make, cargo, vim and mutt, one strace output each.
#
#   record.sh OUTPUT C_PROJECT GIT_REPOSITORY RUST_WORKSPACE [WORK...]
#
# OUTPUT gets a home directory, in which all work is done, and NAME.strace of each kind of work. C_PROJECT is a source
# tree with a configure script, GIT_REPOSITORY one with at least 300 commits, RUST_WORKSPACE a vendored workspace.
# Plugins of vim are taken from /usr/share. Programs: strace, git, make, a C compiler, cargo, vim, mutt, script.
set -euo pipefail

script=$(realpath "$0")
if [ "$1" != inside ]; then
    mkdir -p "$1"
    output=$(realpath "$1") c_project=$(realpath "$2") repository=$(realpath "$3") workspace=$(realpath "$4")
    works=("${@:5}")
    [ "${#works[@]}" -gt 0 ] || works=(git make cargo vim mutt)
    export output days=${DAYS:-10} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
    export HOME=$output/home TERM=xterm LANG=C.UTF-8 GIT_CONFIG_NOSYSTEM=1
fi
RANDOM=7

# The command of `remora lab predict --help`.
record() {
    strace -f -ttt -y -Y -qq -e signal=none -o "$output/$1.strace" \
        -e trace=open,openat,creat,rename,renameat,renameat2,link,linkat,unlink,unlinkat,fstat,stat,lstat,newfstatat,statx -- "${@:2}"
}

# Prints COUNT lines of a file, chosen at random, those at its beginning more often.
choose() {
    local file=$1 count=$2 lines
    lines=$(wc -l < "$file")
    for _ in $(seq "$count"); do
        sed -n "$((RANDOM * RANDOM % lines * RANDOM / 32768 + 1))p" "$file"
    done
}

# Today's files of interest: half of yesterday's, and others.
focus() {
    local all=$1 today=$2
    touch "$today"
    shuf -n 3 --random-source=<(yes "$RANDOM") "$today" > "$today.new"
    choose "$all" 4 >> "$today.new"
    mv "$today.new" "$today"
}

edit() {
    echo "$2" >> "$1"
}

day_of_git() {
    git -C "$HOME/upstream.git" update-ref refs/heads/main "$(sed -n "$((day * 20 + 1))p" "$output/commits")"
    git fetch -q
    git checkout -q main
    git merge -q --ff-only origin/main
    git log --oneline -20 > /dev/null
    git checkout -q -b "topic-$day"
    git ls-files '*.rs' > "$output/files"
    focus "$output/files" "$output/today"
    for _ in 1 2 3; do
        while read -r file; do
            [ -f "$file" ] || continue
            edit "$file" "// $day $RANDOM"
            git status -s > /dev/null
        done < <(choose "$output/today" 3)
        git diff > /dev/null
        git log -3 -p -- "$(choose "$output/today" 1)" > /dev/null
        git commit -q -a -m "Change $RANDOM"
    done
    git grep -c "$(choose "$output/words" 1)" > /dev/null || true
    git blame "$(git ls-files '*.md' | shuf -n 1 --random-source=<(yes "$RANDOM"))" > /dev/null
    git checkout -q main
    git merge -q --squash "topic-$day" > /dev/null
    git commit -q -m "Merge topic-$day"
    git rebase -q origin/main
    git status > /dev/null
    if [ "$((day % 4))" = 3 ]; then git gc -q; fi
    git reset -q --hard origin/main
}

git_work() {
    git config --global user.name "A. User"
    git config --global user.email user@example.org
    git config --global gc.auto 0
    git clone -q file://"$HOME/upstream.git" "$HOME/project"
    cd "$HOME/project"
    for day in $(seq "$days"); do day_of_git; done
}

day_of_make() {
    focus "$output/files" "$output/today"
    # What others have changed since yesterday.
    choose "$output/files" 6 | while read -r file; do edit "$file" "/* others $day */"; done
    if [ "$((day % 3))" = 1 ]; then edit tmux.h "/* $day */"; fi
    make > /dev/null
    for _ in $(seq 12); do
        choose "$output/today" $((RANDOM % 3 + 1)) | while read -r file; do edit "$file" "/* $day $RANDOM */"; done
        make > /dev/null
    done
    if [ "$((day % 5))" = 0 ]; then make clean > /dev/null; make > /dev/null; fi
}

make_work() {
    cd "$HOME/c-project"
    ls ./*.c | sort > "$output/files"
    for day in $(seq "$days"); do day_of_make; done
}

day_of_cargo() {
    focus "$output/files" "$output/today"
    choose "$output/files" 3 | while read -r file; do edit "$file" "// others $day"; done
    cargo build -q --offline
    for _ in $(seq 6); do
        choose "$output/today" 2 | while read -r file; do edit "$file" "// $day $RANDOM"; done
        cargo check -q --offline
    done
    cargo build -q --offline
}

cargo_work() {
    cd "$HOME/workspace"
    find crates -name '*.rs' -path '*/src/*' | sort > "$output/files"
    for day in $(seq "$days"); do day_of_cargo; done
}

day_of_vim() {
    focus "$output/files" "$output/today"
    for _ in $(seq 8); do
        choose "$output/today" $((RANDOM % 3 + 1)) > "$output/session"
        commands=()
        while read -r file; do
            commands+=(-c "edit $file" -c "normal Go/* $day */" -c "write")
        done < "$output/session"
        if [ "$((RANDOM % 2))" = 0 ]; then commands+=(-c "silent! tag $(choose "$output/words" 1)"); fi
        script -qec "vim $(printf '%q ' "${commands[@]}") -c quitall!" /dev/null > /dev/null < /dev/null || true
    done
}

vim_work() {
    cd "$HOME/c-project"
    ls ./*.c ./*.h | sort > "$output/files"
    for day in $(seq "$days"); do day_of_vim; done
}

# A message of 1 to 64 KiB.
deliver() {
    local folder=$1 number=$2 size=$((1024 << (RANDOM % 6)))
    {
        printf 'From: user%d@example.org\nTo: me@example.org\nSubject: Subject %d\n' "$((number % 40))" "$((number / 3))"
        printf 'Date: %s\nMessage-ID: <%d@example.org>\n\n' "$(date -R -d "@$((1700000000 + number * 600))")" "$number"
        yes "A line of the message $number." | head -c "$size" || true
    } > "$folder/tmp/$number"
    mv "$folder/tmp/$number" "$folder/new/$((1700000000 + number * 600)).$number.host"
}

day_of_mutt() {
    for _ in $(seq 25); do
        mail=$((mail + 1))
        deliver "$HOME/Mail/inbox" "$mail"
    done
    for _ in 1 2 3 4; do
        keys=""
        for _ in $(seq 8); do keys+="<next-unread><display-message><exit>"; done
        for _ in 1 2 3; do keys+="<jump>$((RANDOM % 200 + 1))<enter><display-message><exit>"; done
        keys+="<change-folder-readonly>=list<enter><last-entry>"
        for _ in 1 2 3 4; do keys+="<display-message><exit><previous-entry>"; done
        keys+="<change-folder>=inbox<enter><sync-mailbox><quit>"
        script -qec "mutt -e 'push \"$keys\"'" /dev/null > /dev/null < /dev/null || true
    done
}

mutt_work() {
    mail=1400
    for day in $(seq "$days"); do day_of_mutt; done
}

prepare_git() {
    git clone -q --bare "$repository" "$HOME/upstream.git"
    git -C "$HOME/upstream.git" log --first-parent --reverse --format=%H -n 240 main > "$output/commits"
    git -C "$HOME/upstream.git" update-ref refs/heads/main "$(head -1 "$output/commits")"
    git -C "$HOME/upstream.git" symbolic-ref HEAD refs/heads/main
    printf '%s\n' timeout Bytes assert state window cache buffer handle offset retry > "$output/words"
}

prepare_make() {
    cp -a "$c_project" "$HOME/c-project"
    (cd "$HOME/c-project" && ./configure > /dev/null)
}

prepare_cargo() {
    cp -a "$workspace" "$HOME/workspace"
}

prepare_vim() {
    prepare_make
    mkdir -p "$HOME/.vim/pack/plugins/start"
    for plugin in /usr/share/vim-*/ /usr/share/vim/vimfiles/pack/dist-bundle/start/*/; do
        cp -rL "$plugin" "$HOME/.vim/pack/plugins/start/"
    done
    printf '%s\n' 'set packpath=~/.vim' 'syntax on' 'filetype plugin indent on' 'set tags=tags' 'set viminfo+=n~/.viminfo' 'set nomore' \
        > "$HOME/.vimrc"
    (cd "$HOME/c-project" && ctags ./*.c ./*.h)
    awk '$0 !~ /^!/ { print $1 }' "$HOME/c-project/tags" | shuf -n 40 --random-source=<(yes 7) > "$output/words"
}

prepare_mutt() {
    mkdir -p "$HOME"/Mail/{inbox,list,sent}/{cur,new,tmp} "$HOME"/.mutt "$HOME"/.cache/mutt
    for mail in $(seq 800); do deliver "$HOME/Mail/inbox" "$mail"; done
    for mail in $(seq 801 1400); do deliver "$HOME/Mail/list" "$mail"; done
    for folder in inbox list; do
        for file in "$HOME/Mail/$folder/new/"*; do mv "$file" "$HOME/Mail/$folder/cur/${file##*/}:2,S"; done
    done
    printf '%s\n' 'set mbox_type=Maildir folder=~/Mail spoolfile=~/Mail/inbox' 'set header_cache=~/.cache/mutt' \
        'set wait_key=no confirmappend=no quit=yes move=no mark_old=no sort=threads' 'set wrap_search=yes' \
        'source ~/.mutt/colors' 'source ~/.mutt/aliases' > "$HOME/.muttrc"
    echo 'color normal default default' > "$HOME/.mutt/colors"
    for number in $(seq 40); do echo "alias user$number user$number@example.org"; done > "$HOME/.mutt/aliases"
    echo 'text/html; cat %s' > "$HOME/.mailcap"
}

if [ "$1" = inside ]; then
    "$2_work"
    exit
fi
for name in "${works[@]}"; do
    rm -rf "$HOME" "$output/today"
    mkdir -p "$HOME"
    "prepare_$name"
    record "$name" bash "$script" inside "$name"
done
