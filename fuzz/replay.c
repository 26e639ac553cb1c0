/* Replays a committed corpus through a fuzz target: every file of every folder (or file) named on the command line. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot open %s\n", path);
        return 0;
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(size ? size : 1); /* exact size: the sanitizer sees one byte too far */
    if (!data || fread(data, 1, size, file) != size) {
        fclose(file);
        free(data);
        return 0;
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 1;
}

int main(int argc, char **argv)
{
    int replayed = 0;
    for (int a = 1; a < argc; a++) {
        DIR *dir = opendir(argv[a]);
        if (!dir) {
            replayed += replay_file(argv[a]);
            continue;
        }
        for (struct dirent *entry; (entry = readdir(dir));) {
            char path[4096];
            struct stat info;
            snprintf(path, sizeof path, "%s/%s", argv[a], entry->d_name);
            if (!stat(path, &info) && S_ISREG(info.st_mode))
                replayed += replay_file(path);
        }
        closedir(dir);
    }
    printf("replayed %d inputs\n", replayed);
    return replayed ? 0 : 1;
}
