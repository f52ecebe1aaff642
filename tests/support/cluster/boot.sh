# The first moments of a machine: makes what is private to it, then becomes the reaper. Run by machine.py.
name=$1 cache=$2 var=$3 reaper=$4

# What is to be seen again at its old place, wherever the mounts below hide it.
mount -t tmpfs tmpfs /run
mkdir -p /run/kept/cache /run/kept/cgroup /run/kept/var
mount --rbind "$cache" /run/kept/cache
mount --rbind /sys/fs/cgroup /run/kept/cgroup
mount --bind "$var" /run/kept/var

# Kubernetes and containerd write below /run, /tmp and /var, at places that cannot all be configured.
mount -t tmpfs tmpfs /tmp
mount --bind /run/kept/var /var
mkdir -p "$cache" /run/lock /var/lib /var/log /var/tmp
mount --rbind /run/kept/cache "$cache"

# A sysfs shows the network of the namespace in which it was mounted.
mount -t sysfs sysfs /sys
mount --rbind /run/kept/cgroup /sys/fs/cgroup
umount --lazy /run/kept/cache /run/kept/cgroup /run/kept/var
# crun refuses to choose between hierarchies of version 1 and one of version 2 that has a controller too.
if mountpoint --quiet /sys/fs/cgroup/unified; then umount /sys/fs/cgroup/unified; fi

# Kubelet and containers see each other's mounts.
mount --make-rshared /

hostname "$name"
ip link set lo up
echo 1 >/proc/sys/net/ipv4/ip_forward
exec "$reaper"
