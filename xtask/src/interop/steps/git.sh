# A repository: every object a file made exclusively, written, linked or renamed.
# On a server without privileges the files are not root's, which git would take ill.
printf '[safe]\n\tdirectory = *\n' > "$io/gitconfig"
export GIT_CONFIG_GLOBAL="$io/gitconfig" GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q repository
cp -r "$source"/base "$source"/wire repository
cd repository
git config core.fsync all
git add .
git commit -q -m one
find . -name '*.rs' -not -path './.git/*' | head -20 | xargs sed -i 1d
test "$(git status --short | wc -l)" = 20
git commit -q -a -m two
git switch -q -c side HEAD~1
git merge -q --no-edit --no-ff -
test "$(git log --oneline | wc -l)" -ge 2
git gc -q
echo 3 > /proc/sys/vm/drop_caches
git fsck --full --strict
git clone -q --no-hardlinks . ../clone
test -z "$(git -C ../clone status --short)"
cd ..
diff -r --exclude=.git repository clone
