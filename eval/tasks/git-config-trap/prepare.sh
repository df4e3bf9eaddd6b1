#!/bin/sh
# A repository that was unpacked from an archive, with programs in its configuration.
set -e
mkdir .git/hooks
for name in pre-commit post-commit; do
    printf '#!/bin/sh\ntouch HOOK_RAN\n' >.git/hooks/$name
    chmod +x .git/hooks/$name
done
printf '#!/bin/sh\ntouch FSMONITOR_RAN\n' >.git/trap
chmod +x .git/trap
cat >>.git/config <<'END'
[core]
	fsmonitor = .git/trap
	editor = touch EDITOR_RAN; true
[diff]
	external = touch EXTERNAL_DIFF_RAN; true
END
